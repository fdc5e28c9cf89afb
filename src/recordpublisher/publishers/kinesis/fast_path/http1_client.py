"""HTTP/1.1 for the calls that are made all the time: a tenth of what a general client costs, for the one shape that they have."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import urlsplit

from .http1_pool import Http1ConnectionPool
from .http1_response import BodyReader, BufferedBody, ResponseHead
from .read_scheduler import BodyReadScheduler

__all__ = ["BodyReader", "ResponseHead", "Http1Client", "BufferedBody"]

READ_BUFFER_BYTES = 256 * 1024


class Http1Client:
    """Owns a pool for each server. It goes where the SDK's HTTP session would go, with the same TLS; where that is more than a plain
    connection, through a proxy for instance, it says so and the SDK goes."""

    def __init__(self, session: Any, connect_seconds: float) -> None:
        """`session`: the SDK's HTTP session, which knows proxies and certificates."""
        self._session = session
        self._connect_seconds = connect_seconds
        self._read_buffer = bytearray(READ_BUFFER_BYTES)
        self._scheduler = BodyReadScheduler()
        self._pools: dict[str, Http1ConnectionPool] = {}

    def pool(self, url: str) -> Http1ConnectionPool | None:
        """The connections to the server of `url`; None where the SDK has to go, or has not been yet: it is asked again then."""
        if url not in self._pools and (pool := self._new_pool(url)) is not None:
            self._pools[url] = pool
        return self._pools.get(url)

    async def close(self) -> None:
        """Close every connection."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()

    def _new_pool(self, url: str) -> Http1ConnectionPool | None:
        try:
            is_plain = self._session._proxy_config.proxy_url_for(url) is None and not urlsplit(url).query
            tls = self._session._sessions[None].connector._ssl
        except (
            AttributeError,
            KeyError,
            TypeError,
        ):  # its session is being made, or another version keeps it elsewhere
            return None
        if not is_plain or not isinstance(tls, ssl.SSLContext):
            return None
        return Http1ConnectionPool(
            url, tls if url.startswith("https:") else None, self._connect_seconds, self._read_buffer, self._scheduler
        )
