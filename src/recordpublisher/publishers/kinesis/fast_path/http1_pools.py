"""Http1Pools: the pools of HTTP/1.1 connections for frequent calls, one for each server; a tenth of the CPU of a general client."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from ..sdk_internals import tls_context_for
from .body_read_scheduler import BodyReadScheduler
from .http1_pool import Http1ConnectionPool

READ_BUFFER_BYTES = 256 * 1024


class Http1Pools:
    """Owns a connection pool for each server, with the TLS settings of the SDK's HTTP session.

    It makes direct connections only. For others, such as those through a proxy, `pool` returns None and the SDK makes the call.
    """

    def __init__(self, session: Any, connect_seconds: float) -> None:
        """`session`: the SDK's HTTP session, which knows proxies and certificates."""
        self._session = session
        self._connect_seconds = connect_seconds
        self._read_buffer = bytearray(READ_BUFFER_BYTES)
        self._scheduler = BodyReadScheduler()
        self._pools: dict[str, Http1ConnectionPool] = {}

    def pool(self, url: str) -> Http1ConnectionPool | None:
        """The pool for the server of `url`. None: the SDK must make the call, or has not yet connected (a later call may get one)."""
        if url not in self._pools and (pool := self._new_pool(url)) is not None:
            self._pools[url] = pool
        return self._pools.get(url)

    async def close(self) -> None:
        """Close every connection."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()

    def _new_pool(self, url: str) -> Http1ConnectionPool | None:
        tls = tls_context_for(self._session, url)
        if tls is None or urlsplit(url).query:
            return None
        return Http1ConnectionPool(
            url, tls if url.startswith("https:") else None, self._connect_seconds, self._read_buffer, self._scheduler
        )
