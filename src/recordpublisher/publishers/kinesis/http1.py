"""Sends requests over HTTP/1.1, with a pool of connections for each endpoint (`Http1Pools`).

A connection has one request and response at a time. `http1_response.py` parses the responses. The functions at the end let encrypted
connections share a read buffer, and limit how much a connection reads ahead.
"""

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

from .endpoints import DEFAULT_PORTS, tls_name
from .error_mapping import MalformedResponseError, check_response_size
from .http1_response import BodyReader, ChunkedDecoder, ReaderFactory, ResponseHead, parse_response_head

READ_BUFFER_BYTES = 256 * 1024
CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 12.0
"""How long an idle connection is kept (seconds), as in the SDK. Servers and load balancers close it only later."""
_SILENT_SECONDS = 1.0
"""If a cancelled call has waited longer than this for a response, its connection counts as broken (seconds)."""
_ADDRESSES_SECONDS = 10.0
"""How long the addresses of a host are cached (seconds), so that a thousand shards that start at once look it up once."""
_SECOND_ADDRESS_SECONDS = 0.25


class Http1Pools:
    """A connection pool for each server, with direct connections only.

    `tls_for` returns the TLS context that checks the certificate of a URL. It returns None if the SDK must make the call, for example
    through a proxy.
    """

    def __init__(self, tls_for: Callable[[str], ssl.SSLContext | None], connect_seconds: float) -> None:
        self._tls_for = tls_for
        self._connect_seconds = connect_seconds
        self._read_buffer = bytearray(READ_BUFFER_BYTES)
        self._scheduler = BodyReadScheduler()
        self._pools: dict[str, Http1ConnectionPool] = {}

    def pool(self, url: str) -> Http1ConnectionPool | None:
        """Return the pool for the server of `url`, or None if the SDK must make the call.

        None may also mean that the SDK has not connected yet. Then a later call may return a pool.
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
    """The connections to one server. A request never waits for another one: if no connection is idle, a new one is opened.

    - `tls`: the TLS context that checks the server's certificate, or None for plain http.
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

        `may_repeat`: whether the request may be sent twice, because it changes nothing. It is then sent again if the server had already
        closed the idle connection.

        Raises:

        - ConnectionClosedError if the connection is lost before the response is complete.
        - EndpointConnectionError if no connection can be opened.
        - MalformedResponseError if the response is not valid HTTP, and the errors of the reader.
        """
        # 1. Use an idle connection.
        idle = self._take_idle()
        if idle is not None:
            try:
                return await self._exchange_over(idle, request, reader_for)
            except ConnectionClosedError:
                if not may_repeat or not idle.has_received_nothing:
                    raise
        # 2. If there is none, or if the server had closed it, open a new one.
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
        """Close the idle connections that were last used up to `began` (event-loop time). Called when a connection of that age was lost."""
        # What ended that connection (a load balancer, a suspension of this machine) has probably ended the others. A call that tried them
        # one by one would use up its retries.
        while self._idle and self._idle[0][0] <= began:
            self._drop(self._idle.popleft()[1])

    def _take_idle(self) -> Http1Connection | None:
        """Return the idle connection that was used last, or None. Connections that the server has closed are skipped."""
        # The one that was used last is taken, so that connections that are not needed grow old and are closed.
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
            # If all waiters have been cancelled, nothing else would retrieve the exception, and asyncio would log it.
            self._resolving.add_done_callback(_has_failed)
        resolving = self._resolving
        self._awaiting_addresses += 1
        try:
            # A waiter that is cancelled must not cancel this task, because other waiters share it.
            await asyncio.wait([resolving])
        finally:
            self._awaiting_addresses -= 1
            # The last waiter that goes cancels the task.
            if not self._awaiting_addresses and not resolving.done():
                self._resolving = None
                resolving.cancel()
                await asyncio.wait([resolving])
        if resolving.cancelled():
            raise ConnectionResetError("the connections were closed while the addresses of the server were looked up")
        return resolving.result()

    async def _resolve(self) -> list[Any]:
        parts = urlsplit(self._url)
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        return await asyncio.get_running_loop().getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)


def _rotate(addresses: list[Any], rotation: int) -> list[Any]:
    """Return the addresses, those of each family rotated by `rotation` places, so that connections are spread over the servers.

    The order of the families (IPv4, IPv6) stays that of the resolver.
    """
    families: dict[int, list[Any]] = {}
    for address in addresses:
        families.setdefault(address[0], []).append(address)
    return [same[(n + rotation) % len(same)] for same in families.values() for n in range(len(same))]


def _has_failed(task: asyncio.Task[list[Any]]) -> bool:
    return task.cancelled() or task.exception() is not None


class ConnectionClosedError(OSError):
    """The connection was lost before the response was complete. The errors of this module have the names and texts of the SDK's errors."""


class EndpointConnectionError(OSError):
    """The client could not connect to the server."""


class ConnectTimeoutError(EndpointConnectionError):
    """The client could not connect to the server in time."""


class SSLError(EndpointConnectionError):
    """The TLS handshake failed, for example because of the certificate."""


_MAX_HEAD_BYTES = 64 * 1024
_HEAD_END = b"\r\n\r\n"
_WRITE_BYTES = 256 * 1024  # The loop runs between two pieces of a large request (F1).


class Http1Connection(asyncio.BufferedProtocol):
    """A socket that sends one request at a time, and receives its response. All work is done in callbacks, so no task can leak.

    All connections of a loop share `read_buffer`, into which the kernel writes. Each connection consumes its bytes before another one
    reads, and copies the bytes that it cannot consume yet. Therefore bytes are parsed while they are in the CPU's caches, and more
    connections do not need more buffers.

    The steps of a response: `buffer_updated` receives bytes, `_consume` looks for the head, `_begin_body` chooses the reader of the body,
    `_consume_body` feeds it, and `_done` gives the result to `exchange`.
    """

    def __init__(self, read_buffer: bytearray, scheduler: BodyReadScheduler) -> None:
        self._scheduler = scheduler
        self._read_buffer = read_buffer
        self._buffer = read_buffer
        self._leftover = b""
        self._filled = 0
        self._transport: Any = None
        self._closed = asyncio.get_running_loop().create_future()
        self._drained = asyncio.Event()
        self._drained.set()
        self._response: asyncio.Future[tuple[ResponseHead, BodyReader]] | None = None
        self._reader_for: ReaderFactory | None = None
        self._head: ResponseHead | None = None
        self._reader: BodyReader | None = None
        self._chunks: ChunkedDecoder | None = None
        self._left: int | None = None
        self._received = self._head_bytes = 0

    @property
    def is_usable(self) -> bool:
        """Whether the connection is open, and can send another request."""
        return not self._closed.done() and not self._transport.is_closing() and self._response is None

    @property
    def has_received_nothing(self) -> bool:
        """Whether no byte of a response has arrived since the last request."""
        return self._head is None and not self._filled

    async def exchange(self, request: bytes, reader_for: ReaderFactory) -> tuple[ResponseHead, BodyReader]:
        """Send a request, and return the head and the body of the response.

        `reader_for` returns the reader of the body for a head. Any error or cancellation closes the connection.

        Raises: ConnectionResetError if the connection is closed; MalformedResponseError if the response is not valid HTTP; the errors of
        the reader.
        """
        self._response = response = asyncio.get_running_loop().create_future()
        self._reader_for, self._head, self._reader, self._chunks, self._left = reader_for, None, None, None, None
        self._received = self._head_bytes = 0
        try:
            await self._send(request, response)
            head, reader = await response
        except BaseException:
            self.abort()
            raise
        finally:
            self._response = self._reader_for = self._reader = None
            self._scheduler.finish(self)
        # Bytes that follow the response, or a part of the request that was not sent, would be taken for the next exchange.
        if not head.keeps_alive or self._filled or self._transport.get_write_buffer_size():
            self.abort()
        return head, reader

    async def _send(self, request: bytes, response: asyncio.Future[tuple[ResponseHead, BodyReader]]) -> None:
        if self._closed.done() or self._transport.is_closing():
            raise ConnectionResetError("the connection was closed before the request")
        for start in range(0, len(request), _WRITE_BYTES):
            await self._drained.wait()
            # The server has answered before it received the whole request. It would take the next request for the rest of this one, so the
            # connection is closed.
            if response.done():
                self.abort()
                return
            self._transport.write(request[start : start + _WRITE_BYTES])

    def abort(self) -> None:
        """Close the connection; a request in flight fails."""
        self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed."""
        await asyncio.wait([self._closed])

    # --- asyncio's protocol -------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Store the transport of the open socket."""
        self._transport = transport
        # Sharing is safe, because asyncio copies decrypted bytes out before it writes into the buffer again.
        share_read_buffer(transport, self._read_buffer)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes, after the bytes that are not consumed yet."""
        if self._buffer is self._read_buffer:
            self._read_buffer[: self._filled] = self._leftover
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Consume the received bytes."""
        filled = self._filled + nbytes
        self._received += nbytes
        try:
            check_response_size(self._received)
            consumed = self._consume(filled)
        except Exception as error:
            self._fail(error)
            self.abort()
        else:
            self._set_aside(consumed, filled)
            # If one read has filled more than half of the buffer, the body is large, and more bytes are probably waiting.
            if self._reader is not None and 2 * nbytes > len(self._read_buffer):
                self._scheduler.wait_turn(self)

    def eof_received(self) -> None:
        """Complete the response if its body ends with the connection."""
        head, reader = self._head, self._reader
        if head is None or reader is None or head.length is not None or head.is_chunked:
            return
        buffer = (
            memoryview(bytearray(self._leftover)) if self._buffer is self._read_buffer else memoryview(self._buffer)
        )
        try:
            reader.feed(buffer[: self._filled], True)
            # No bytes may be left, because the TLS layer calls `get_buffer` once more after the end.
            self._leftover, self._filled = b"", 0
            self._done(head, reader)
        except Exception as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request in flight."""
        self._fail(ConnectionResetError(str(exc or "closed by the server")))
        self._closed.set_result(None)

    # --- for the scheduler and for writing ----------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop reading; the kernel buffers the bytes that arrive."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Start reading again."""
        self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Stop sending, because the send buffer is full."""
        self._drained.clear()

    def resume_writing(self) -> None:
        """Send again, because the send buffer has room."""
        self._drained.set()

    # --- helpers ------------------------------------------------------------------------------------------------------------------

    def _consume(self, filled: int) -> int:
        """Consume the complete parts of the buffer's first `filled` bytes. Return how many bytes were consumed."""
        if self._response is None or self._response.done():
            raise MalformedResponseError("the server sent bytes without a request")
        at = 0
        while self._head is None:
            end = self._buffer.find(_HEAD_END, at, filled)
            if end < 0:
                if filled - at > _MAX_HEAD_BYTES:
                    raise MalformedResponseError(
                        f"the headers of the response are longer than {_MAX_HEAD_BYTES // 1024} KiB"
                    )
                return at
            self._head_bytes += end - at
            if self._head_bytes > _MAX_HEAD_BYTES:
                raise MalformedResponseError("there are too many interim responses")
            self._begin_body(parse_response_head(bytes(memoryview(self._buffer)[at:end])))
            at = end + len(_HEAD_END)
        return at + self._consume_body(self._head, memoryview(self._buffer)[at:filled])

    def _begin_body(self, head: ResponseHead) -> None:
        if head.is_interim or self._reader_for is None:
            return
        self._head, self._reader = head, self._reader_for(head)
        self._left = head.length
        check_response_size(head.length or 0)
        self._chunks = ChunkedDecoder() if head.is_chunked else None

    def _consume_body(self, head: ResponseHead, data: memoryview) -> int:
        reader = self._reader
        if reader is None:
            # These bytes follow the response. They are kept, so that `exchange` notices them and closes the connection.
            return 0
        if self._chunks is not None:
            consumed = self._chunks.feed(bytes(data))
            if self._chunks.is_done:
                reader.feed(memoryview(self._chunks.content), True)
                self._done(head, reader)
            return consumed
        if self._left is None:  # The body ends when the server closes the connection.
            return reader.feed(data, False)
        consumed = reader.feed(data[: self._left], len(data) >= self._left)
        self._left -= consumed
        if self._left == 0:
            self._done(head, reader)
        return consumed

    def _set_aside(self, consumed: int, filled: int) -> None:
        """Keep the bytes that were not consumed: a few of them in `_leftover`, more in a buffer that belongs to this connection."""
        self._filled = filled - consumed
        if self._filled <= len(self._read_buffer) // 2:
            self._leftover = bytes(memoryview(self._buffer)[consumed:filled])
            self._buffer = self._read_buffer
        elif consumed or filled == len(self._buffer) or self._buffer is self._read_buffer:
            buffer = bytearray(2 * max(self._filled, len(self._read_buffer)))
            buffer[: self._filled] = memoryview(self._buffer)[consumed:filled]
            self._buffer = buffer

    def _done(self, head: ResponseHead, reader: BodyReader) -> None:
        self._reader = None
        self._scheduler.finish(self)
        self._drained.set()
        if self._response is not None and not self._response.done():
            self._response.set_result((head, reader))

    def _fail(self, error: Exception) -> None:
        self._drained.set()
        if self._response is not None and not self._response.done():
            self._response.set_exception(error)


class BodyReadScheduler:
    """Lets one connection at a time read its large body to the end. Without it all connections would read in small parts at the same time.

    So the records of one body pass through the pipeline, and free their memory, before the records of the next body are made. The network
    stays busy in two ways:

    - A connection waits for its turn only if more bytes have arrived than it could read at once.
    - If the connection whose turn it is reads nothing in one iteration of the event loop, the next one gets its turn.
    """

    def __init__(self) -> None:
        self._current: Http1Connection | None = None
        self._has_read = False
        self._waiting: deque[Http1Connection] = deque()

    def wait_turn(self, read: Http1Connection) -> None:
        """Give the turn to the connection `read` if no other connection has it. Otherwise pause `read` until its turn comes."""
        if self._current is None:
            self._begin(read)
        elif self._current is read:
            self._has_read = True
        else:
            read.pause()
            self._waiting.append(read)

    def finish(self, read: Http1Connection) -> None:
        """End the turn of the connection `read`, because its body is complete or has failed. Let the next connection read."""
        if self._current is read:
            self._next()
        elif read in self._waiting:
            self._waiting.remove(read)
            read.resume()

    # --- helpers ------------------------------------------------------------------------------------------------------------------

    def _begin(self, read: Http1Connection) -> None:
        self._current, self._has_read = read, True
        asyncio.get_running_loop().call_soon(self._check_progress, read)

    def _check_progress(self, read: Http1Connection) -> None:
        """End the turn of `read` if it has read nothing since the last check. Called once in an iteration of the loop."""
        if self._current is not read:
            return
        if self._has_read:
            self._has_read = False
            asyncio.get_running_loop().call_soon(self._check_progress, read)
        else:
            self._next()

    def _next(self) -> None:
        self._current = None
        if self._waiting:
            following = self._waiting.popleft()
            following.resume()
            self._begin(following)


# --- shared read buffers of encrypted connections -----------------------------------------------------------------------------------

SUBSCRIPTION_BUFFER_BYTES = 64 * 1024
"""The most bytes of a subscription that asyncio reads at once, and the most encrypted bytes that it buffers.

asyncio's own limits are 256 KiB and 512 KiB. Bytes that follow an event stay in memory until the next event is requested.
"""


def share_read_buffer(transport: Any, read_buffer: bytearray) -> None:
    """Make a connection receive encrypted bytes in `read_buffer`. Without TLS, and on event loops other than asyncio's, this changes
    nothing.

    All connections of an event loop may share the buffer, because asyncio empties it at once.
    """
    protocol: Any = getattr(transport, "_ssl_protocol", None)
    if hasattr(protocol, "_ssl_buffer_view"):
        protocol._ssl_buffer, protocol._ssl_buffer_view = read_buffer, memoryview(read_buffer)


def limit_read_ahead(transport: Any, read_buffer: bytearray) -> None:
    """Limit the bytes that a connection reads at once, and the encrypted bytes that it buffers, to the size of `read_buffer`.

    asyncio's own limits are 256 KiB and 512 KiB. On an event loop without these limits this changes nothing.
    """
    max_bytes = len(read_buffer)
    if hasattr(transport, "set_read_buffer_limits"):
        transport.set_read_buffer_limits(high=max_bytes)
        protocol: Any = getattr(transport, "_ssl_protocol", None)
        if hasattr(protocol, "max_size"):
            protocol.max_size = max_bytes
        share_read_buffer(transport, read_buffer)
    elif hasattr(transport, "max_size"):
        transport.max_size = max_bytes
