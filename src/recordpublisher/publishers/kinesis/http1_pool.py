"""Http1Pools keeps connections for frequent calls open, in a pool for each server. It takes a tenth of a general client's CPU."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import aiohappyeyeballs

from .access import DEFAULT_PORTS, tls_name
from .http1_connection import BodyReader, BodyReadScheduler, Http1Connection, ReaderFactory, ResponseHead

READ_BUFFER_BYTES = 256 * 1024
CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 12.0
"""How long an idle connection is kept, as in the SDK: less than the time after which servers and load balancers close it."""
_SILENT_SECONDS = 1.0
"""If a call is cancelled sooner than this, its silence does not mean that its connection is broken."""
_ADDRESSES_SECONDS = 10.0
"""How long addresses are cached, so that a thousand shards that start at once resolve them once."""
_SECOND_ADDRESS_SECONDS = 0.25


class Http1Pools:
    """Owns a connection pool for each server.

    It makes direct connections only. For other connections, such as those through a proxy, `pool` returns None and the SDK makes
    the call.

    `tls_for` returns the context that checks the certificate of a URL, or None if there is no direct connection.
    """

    def __init__(self, tls_for: Callable[[str], ssl.SSLContext | None], connect_seconds: float) -> None:
        self._tls_for = tls_for
        self._connect_seconds = connect_seconds
        self._read_buffer = bytearray(READ_BUFFER_BYTES)
        self._scheduler = BodyReadScheduler()
        self._pools: dict[str, Http1ConnectionPool] = {}

    def pool(self, url: str) -> Http1ConnectionPool | None:
        """Return the pool for the server of `url`, or None if the SDK must make the call.

        None may also mean that the SDK has not yet connected; then a later call may get a pool.
        """
        if url not in self._pools and (pool := self._new_pool(url)) is not None:
            self._pools[url] = pool
        return self._pools.get(url)

    async def close(self) -> None:
        """Close every connection."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()

    def _new_pool(self, url: str) -> Http1ConnectionPool | None:
        tls = self._tls_for(url)
        if tls is None or urlsplit(url).query:
            return None
        return Http1ConnectionPool(
            url, tls if url.startswith("https:") else None, self._connect_seconds, self._read_buffer, self._scheduler
        )


class Http1ConnectionPool:
    """Owns its connections. A request never waits for another one (F1): if none is idle, a new connection is opened.

    - `tls`: the context that checks the server's certificate, or None for plain http.
    - `read_buffer`: the buffer that all connections share, see `Http1Connection`.
    """

    def __init__(
        self,
        url: str,
        tls: ssl.SSLContext | None,
        connect_seconds: float,
        read_buffer: bytearray,
        scheduler: BodyReadScheduler,
    ) -> None:
        self._url = url
        self._tls = tls
        self._connect_seconds = connect_seconds
        self._read_buffer = read_buffer
        self._scheduler = scheduler
        self._idle: deque[tuple[float, Http1Connection]] = deque()
        self._all: set[Http1Connection] = set()
        self._resolving: asyncio.Task[list[Any]] | None = None
        self._resolved_at = 0.0
        self._awaiting_addresses = 0
        self._rotation = itertools.count()
        self._is_closed = False

    async def exchange(
        self, request: bytes, reader_for: ReaderFactory, may_repeat: bool = False
    ) -> tuple[ResponseHead, BodyReader]:
        """Send a request and read the response.

        If `may_repeat`, the request changes nothing. Then it is sent once more over a new connection, if the server had
        already closed the idle one, because this is not a failure of the service.

        Raises: the errors of this module, and the errors of `Http1Connection.exchange` that are not OSErrors.
        """
        # 1. Use an idle connection.
        idle = self._take_idle()
        if idle is not None:
            try:
                return await self._exchange_over(idle, request, reader_for)
            except ConnectionClosedError:
                if not may_repeat or not idle.has_received_nothing:
                    raise
        # 2. Without one, or if the server had closed it, open a new one.
        return await self._exchange_over(await self._connect(), request, reader_for)

    async def close(self) -> None:
        """Close every connection; requests in flight fail."""
        self._is_closed = True
        if self._resolving is not None:
            self._resolving.cancel()
        self._idle.clear()
        connections, self._all = self._all, set()
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.wait_closed()

    # --- helpers ------------------------------------------------------------------------------------------------------------------

    async def _exchange_over(
        self, connection: Http1Connection, request: bytes, reader_for: ReaderFactory
    ) -> tuple[ResponseHead, BodyReader]:
        began = asyncio.get_running_loop().time()
        try:
            return await connection.exchange(request, reader_for)
        except OSError as error:
            self._drop_idle_since(began)
            words = f'Connection was closed before we received a valid response from endpoint URL: "{self._url}".'
            raise ConnectionClosedError(words) from error
        except asyncio.CancelledError:
            if connection.has_received_nothing and asyncio.get_running_loop().time() - began > _SILENT_SECONDS:
                self._drop_idle_since(began)
            raise
        finally:
            self._return(connection)

    def _drop_idle_since(self, began: float) -> None:
        """Close idle connections that have not been used since `began`, after a connection of that age was lost."""
        # The cause (a load balancer that dropped the connection, a suspension of this machine) has probably ended them as
        # well. A call that met them one by one would use up its retries.
        while self._idle and self._idle[0][0] <= began:
            self._drop(self._idle.popleft()[1])

    def _take_idle(self) -> Http1Connection | None:
        """Return the idle connection that was used last, if the server has not closed it."""
        # The last one, so that connections that are not needed grow old, and are closed.
        oldest = asyncio.get_running_loop().time() - _IDLE_SECONDS
        while self._idle:
            since, connection = self._idle.pop()
            if connection.is_usable and since > oldest:
                return connection
            self._drop(connection)
        return None

    def _return(self, connection: Http1Connection) -> None:
        now = asyncio.get_running_loop().time()
        if connection.is_usable:
            self._idle.append((now, connection))
        else:
            self._drop(connection)
        while self._idle and (self._idle[0][0] < now - _IDLE_SECONDS or not self._idle[0][1].is_usable):
            self._drop(self._idle.popleft()[1])

    def _drop(self, connection: Http1Connection) -> None:
        self._all.discard(connection)
        connection.abort()

    async def _connect(self) -> Http1Connection:
        name = tls_name(urlsplit(self._url)) if self._tls else None
        try:
            async with asyncio.timeout(self._connect_seconds):
                found = await aiohappyeyeballs.start_connection(
                    _rotate(await self._addresses(), next(self._rotation)),
                    happy_eyeballs_delay=_SECOND_ADDRESS_SECONDS,
                )
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Http1Connection(self._read_buffer, self._scheduler),
                    sock=found,
                    ssl=self._tls,
                    server_hostname=name,
                )
        except TimeoutError as error:
            raise ConnectTimeoutError(f'Connect timeout on endpoint URL: "{self._url}"') from error
        except ssl.SSLError as error:
            raise SSLError(f"SSL validation failed for {self._url} {error}") from error
        except OSError as error:
            raise EndpointConnectionError(f'Could not connect to the endpoint URL: "{self._url}"') from error
        if self._is_closed:  # The pool was closed while the connection was being opened.
            connection.abort()
            raise EndpointConnectionError(f'Could not connect to the endpoint URL: "{self._url}"')
        self._all.add(connection)
        return connection

    async def _addresses(self) -> list[Any]:
        now = asyncio.get_running_loop().time()
        is_old = now - self._resolved_at > _ADDRESSES_SECONDS
        if self._resolving is None or (self._resolving.done() and (is_old or _has_failed(self._resolving))):
            self._resolved_at = now
            self._resolving = asyncio.create_task(self._resolve())
            self._resolving.add_done_callback(
                _has_failed
            )  # All waiters may be gone. This marks the exception as retrieved.
        resolving = self._resolving
        self._awaiting_addresses += 1
        try:
            await asyncio.wait([resolving])  # A cancelled waiter does not cancel the task for the others.
        finally:
            self._awaiting_addresses -= 1
            # With its last waiter the task is cancelled.
            if not self._awaiting_addresses and not resolving.done():
                self._resolving = None
                resolving.cancel()
                await asyncio.wait([resolving])
        if resolving.cancelled():
            raise ConnectionResetError("closed")
        return resolving.result()

    async def _resolve(self) -> list[Any]:
        parts = urlsplit(self._url)
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        return await asyncio.get_running_loop().getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)


def _rotate(addresses: list[Any], rotation: int) -> list[Any]:
    """Rotate the addresses, so that connections are spread over the servers. Address families keep the resolver's order."""
    families: dict[int, list[Any]] = {}
    for address in addresses:
        families.setdefault(address[0], []).append(address)
    return [same[(n + rotation) % len(same)] for same in families.values() for n in range(len(same))]


def _has_failed(task: asyncio.Task[list[Any]]) -> bool:
    return task.cancelled() or task.exception() is not None


class ConnectionClosedError(OSError):
    """The connection was lost before the response was complete. Names and texts of these errors are the same as the SDK's."""


class EndpointConnectionError(OSError):
    """The client could not connect to the server."""


class ConnectTimeoutError(EndpointConnectionError):
    """The client could not connect to the server in time."""


class SSLError(EndpointConnectionError):
    """The TLS handshake failed, for example because of the certificate."""
