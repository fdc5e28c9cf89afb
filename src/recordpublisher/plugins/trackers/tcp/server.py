"""Serves the global watermark of any number of jobs, on loopback unless configured otherwise (W6, W10, C4)."""

import asyncio
import logging
import resource
import socket
import ssl
from types import TracebackType
from typing import Any, Self

from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis.read_buffers import limit_handshake_read_ahead

from .group_registry import GroupRegistry
from .protocol import HANDSHAKE_TIMEOUT_SECONDS
from .server_connection import ClientOfServer, ConnectionListener, ServerConnection
from .tls import check_context, rejection_of_client

log = logging.getLogger("recordpublisher.tracker")

READ_BUFFER_BYTES = 64 * 1024
ACCEPTS_PER_TURN = 16
ACCEPT_BACKLOG = 4_096
MAX_OPEN_FILES = 65_536
MAINTENANCE_INTERVAL_SECONDS = 0.25
STATS_INTERVAL_SECONDS = 60.0
IDLE_TIMEOUT_SECONDS = 300.0
"""How long a subtask may send nothing before its connection is closed. A running one sends at every sync interval."""


class TrackerServer:
    """Owns the listening socket, every connection and every group, from `start` to `close` (or as `async with`).

    Only clients with `token` are served, and with `tls` over TLS only. `max_connections` limits authenticated clients, and
    `max_unauthenticated` the others: beyond that limit the oldest unauthenticated client is disconnected.

    Raises: ConfigurationError if the token is empty, or if `tls` is a client's context.
    """

    def __init__(
        self,
        token: str,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        max_connections: int = 20_000,
        max_unauthenticated: int = 4_000,
    ) -> None:
        if not token:
            raise ConfigurationError("token", None, "a non-empty text, the same for every subtask")
        check_context(tls, ssl.PROTOCOL_TLS_SERVER)
        self.host = host
        self.port = port
        self.token = token
        self.read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self._encrypted_buffer = bytearray(READ_BUFFER_BYTES)
        self.groups = GroupRegistry(lambda seconds, call: asyncio.get_running_loop().call_later(seconds, call))
        self._tls = tls
        self._clock = clock or SystemClock()
        self._max_connections = max_connections
        self._max_unauthenticated = max_unauthenticated
        self._unauthenticated: dict[ClientOfServer, None] = {}
        self._authenticated: dict[ClientOfServer, None] = {}
        self._rejections: dict[str, int] = {}
        self._logged_heartbeats = 0
        self._server: asyncio.Server | None = None
        self._maintenance: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """The value for `flink.watermark.tracker.address`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    async def start(self) -> Self:
        """Start to listen. Raises: ConfigurationError if the address is not available."""
        _raise_open_file_limit()
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            listening = socket.create_server((self.host, self.port), family=family)
        except (OSError, OverflowError) as error:
            raise ConfigurationError("port", self.port, "a free port, or 0 for any", reason=str(error)) from error
        loop = asyncio.get_running_loop()
        # asyncio accepts up to `backlog` connections per turn of the loop; a small number keeps a rush of new ones from delaying the others
        self._server = await loop.create_server(self._new_connection, sock=listening, backlog=ACCEPTS_PER_TURN)
        listening.listen(ACCEPT_BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]
        self._maintenance = asyncio.create_task(self._maintenance_loop(), name="tracker")
        return self

    async def close(self) -> None:
        """Close every connection. Subtasks continue with the last global watermark."""
        if self._maintenance is not None:
            self._maintenance.cancel()
            await asyncio.gather(self._maintenance, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        handshakes = [each.task for each in self._unauthenticated if isinstance(each, TlsHandshake)]
        for connection in [*self._unauthenticated, *self._authenticated]:
            connection.abort()
        await asyncio.gather(asyncio.sleep(0), *handshakes, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- events of connections --------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the time of the monotonic clock (ms)."""
        return self._clock.monotonic() * 1000

    def on_connected(self, connection: ClientOfServer) -> None:
        """Register a new client. If too many are unauthenticated, disconnect the oldest of them."""
        self._unauthenticated[connection] = None
        if len(self._unauthenticated) > self._max_unauthenticated:
            self.on_rejected("too many unauthenticated")
            next(iter(self._unauthenticated)).abort()

    def on_authenticated(self, connection: ClientOfServer) -> None:
        """Register that a client has the token. Disconnect it if there are too many."""
        self._unauthenticated.pop(connection, None)
        self._authenticated[connection] = None
        if len(self._authenticated) > self._max_connections:
            self.on_rejected("too many connections")
            connection.abort()

    def on_rejected(self, reason: str) -> None:
        """Count a rejected client for the statistics line."""
        self._rejections[reason] = self._rejections.get(reason, 0) + 1

    def on_closed(self, connection: ClientOfServer) -> None:
        """Forget a connection that was closed."""
        self._unauthenticated.pop(connection, None)
        self._authenticated.pop(connection, None)

    def _new_connection(self) -> asyncio.BaseProtocol:
        if self._tls is None:
            return ServerConnection(self)
        return TlsHandshake(self, self._tls, self._encrypted_buffer)

    # --- maintenance ------------------------------------------------------------------------------------------------------------

    async def _maintenance_loop(self) -> None:
        self._stats_logged_at = self._maintained_at = self._clock.monotonic()
        while True:
            await asyncio.sleep(MAINTENANCE_INTERVAL_SECONDS)
            try:
                self._maintain(self._clock.monotonic())
            except Exception:
                log.exception("maintenance of the tracker failed; it is repeated")

    def _maintain(self, now: float) -> None:
        was_suspended, self._maintained_at = now - self._maintained_at >= HANDSHAKE_TIMEOUT_SECONDS, now
        self.groups.expire(self.now())
        if was_suspended:  # what clients sent in that time is still unread
            self._restart_timeouts()
        self._disconnect_silent(self._unauthenticated, HANDSHAKE_TIMEOUT_SECONDS)
        self._disconnect_silent(self._authenticated, IDLE_TIMEOUT_SECONDS)
        if now - self._stats_logged_at >= STATS_INTERVAL_SECONDS:
            log.info(self._take_stats_line(now - self._stats_logged_at))
            self._stats_logged_at = now

    def _restart_timeouts(self) -> None:
        for connection in [*self._unauthenticated, *self._authenticated]:
            connection.last_request_at = self.now()

    def _disconnect_silent(self, connections: dict[ClientOfServer, None], timeout_seconds: float) -> None:
        earliest = self.now() - timeout_seconds * 1000
        for connection in [each for each in connections if each.last_request_at < earliest]:
            self.on_rejected("silent")
            connection.abort()

    def _take_stats_line(self, seconds: float) -> str:
        """Return the statistics since the last line, and reset them."""
        rejected = ", ".join(f"{reason} {count}" for reason, count in sorted(self._rejections.items())) or "none"
        heartbeats, self._rejections = self.groups.heartbeats - self._logged_heartbeats, {}
        self._logged_heartbeats = self.groups.heartbeats
        return (
            f"{len(self.groups)} groups, {self.groups.connected_subtasks} subtasks, {len(self._authenticated)} connections, "
            f"{heartbeats / seconds:.0f} heartbeats/s, rejected: {rejected}"
        )


def _raise_open_file_limit() -> None:
    """Raise the limit of open files, because every connection is an open file, and the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class TlsHandshake(asyncio.Protocol):
    """Owns one connection from its acceptance to the end of the TLS handshake.

    The listener counts the connection as unauthenticated from its first moment. asyncio's own TLS servers show a connection only after its
    handshake, so clients that connect and send nothing could not be limited. Whatever a client sends affects only its own connection.

    `read_buffer` is for encrypted bytes. All connections of the listener share it.
    """

    def __init__(self, listener: ConnectionListener, context: ssl.SSLContext, read_buffer: bytearray) -> None:
        self._listener = listener
        self._context = context
        self._read_buffer = read_buffer
        self.last_request_at = listener.now()

    def connection_made(self, transport: Any) -> None:
        """Start the handshake."""
        self._transport: asyncio.Transport = transport
        self._listener.on_connected(self)
        self.task = asyncio.create_task(self._establish())

    def data_received(self, data: bytes) -> None:
        """Reject a client that sends before the challenge."""
        self._listener.on_rejected("malformed")
        self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    async def _establish(self) -> None:
        """Finish the handshake, or close the connection. The listener's timeout ends a handshake that makes no progress."""
        secured: asyncio.Transport | None = None
        try:
            if not self._transport.is_closing():
                loop = asyncio.get_running_loop()
                # asyncio gives each TLS connection a buffer of 256 KiB; this runs when it has, and before it reads
                loop.call_soon(limit_handshake_read_ahead, self._transport, self._read_buffer)
                secured = await loop.start_tls(self._transport, self, self._context, server_side=True)
        except OSError as error:  # TLS errors are also OSErrors
            self._listener.on_rejected(rejection_of_client(error))
        finally:
            self._listener.on_closed(self)
        if secured is not None and not secured.is_closing():  # None if the connection was lost in the meantime
            connection = ServerConnection(self._listener)
            secured.set_protocol(connection)
            connection.connection_made(secured)
