"""Gets a subtask's global watermark from a tracker server over TCP (W6, W10)."""

import asyncio
import logging
import ssl

from recordpublisher.fetcher.coordination.heartbeat_messages import HeartbeatRequest, HeartbeatResponse
from recordpublisher.fetcher.coordination.remote_tracker import RemoteTracker
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.job import TRACKER_ADDRESS, TRACKER_TOKEN
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.retry import RetryPolicy

from .client_connection import ClientConnection
from .protocol import HANDSHAKE_TIMEOUT_SECONDS
from .tls import check_context, client_context, connection_problem, silence_hint

log = logging.getLogger("recordpublisher.tracker")

CONNECT_TIMEOUT_SECONDS = 5.0
CLOSE_TIMEOUT_SECONDS = 1.0
"""How long a leaving subtask waits until its last request is sent (seconds)."""
MAX_RECONNECT_DELAY_MS = 5_000
WARNING_INTERVAL_MS = 60_000.0


class TcpTracker(RemoteTracker):
    """Owns a subtask's connection to the tracker, and reconnects if it is lost or silent.

    No connection problem blocks or raises: without a connection the last global watermark stays valid, and a warning is logged once a
    minute. `tls` replaces the properties below `flink.watermark.tracker.tls`.

    Raises: ConfigurationError if `flink.watermark.tracker.address` (host:port) or `.token` is missing, or if a TLS setting is invalid (C2).
    """

    def __init__(
        self, properties: Properties, clock: Clock | None = None, *, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(properties, clock)
        self._host, self._port = _address(properties)
        token = properties.value(TRACKER_TOKEN)
        if token is None:
            raise ConfigurationError(TRACKER_TOKEN.key, None, "the token that the tracker was started with")
        self._token = token
        check_context(tls, ssl.PROTOCOL_TLS_CLIENT)
        self._tls = tls or client_context(properties)
        self._connection: ClientConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._connected_at = self._warned_at = float("-inf")
        self._failures = 0
        self._logged_problem: str | None = None

    async def open(self, subtask: int, parallelism: int) -> None:
        """Set which subtask this is, and start to connect in the background."""
        await super().open(subtask, parallelism)
        self._task = asyncio.create_task(self._stay_connected(), name=f"tracker of subtask {subtask}")

    def send(self, request: HeartbeatRequest) -> None:
        """Send the request if connected. A connection without responses is aborted."""
        if self._connection is not None:
            is_silent = self.now() - self._connected_at > self.config.response_timeout_ms and not self.is_reachable
            self._connection.abort() if is_silent else self._connection.send(request)

    def handle_response(self, response: HeartbeatResponse) -> None:
        """Process a response. A problem that a person must solve is logged once."""
        self._failures = 0
        super().handle_response(response)
        problem = _problem(self.member.is_replaced, self.member.rejection)
        if problem is not None and problem != self._logged_problem:
            log.error("subtask %d of group %s: %s", self.config.subtask, self.config.group, problem)
        self._logged_problem = problem

    async def close(self) -> None:
        """Leave the group and disconnect."""
        await super().close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                    await asyncio.shield(self._connection.closed)
            except TimeoutError:
                self._connection.abort()

    async def _stay_connected(self) -> None:
        # reconnect well within the timeout, because otherwise a restarted tracker would time this subtask out
        max_delay_ms = min(MAX_RECONNECT_DELAY_MS, self.config.timeout_ms // 6)
        delays = RetryPolicy(max_retries=0, base_ms=100, max_ms=max_delay_ms, exponent=2.0)
        while True:
            try:
                await self._run_connection()
            except (
                OSError,
                UnicodeError,
            ) as error:  # a timeout is an OSError; a host name that cannot be encoded, a UnicodeError
                self._warn(connection_problem(error))
            await asyncio.sleep(delays.delay_seconds(self._failures))
            self._failures += 1

    async def _run_connection(self) -> None:
        """Connect, and return when the connection is closed."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            _, connection = await loop.create_connection(self._new_connection, self._host, self._port, ssl=self._tls)
        self._connection, self._connected_at = connection, self.now()
        try:
            self.send_due_request()
            await self._finish_handshake(connection)
            await asyncio.shield(connection.closed)  # cancelling this task does not close the connection
        finally:
            if connection.closed.done():
                self._connection = None
        self._warn(connection.close_reason)

    def _new_connection(self) -> ClientConnection:
        return ClientConnection(self._token, self.on_connected, self.handle_response, silence_hint(self._tls))

    async def _finish_handshake(self, connection: ClientConnection) -> None:
        """Wait until the server has proved the token, and disconnect from a server that does not."""
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_SECONDS):
                await connection.handshake_ended.wait()
        except TimeoutError:
            connection.abort(f"it did not finish the handshake within {HANDSHAKE_TIMEOUT_SECONDS:g} s")

    def _warn(self, reason: str) -> None:
        if self.now() - self._warned_at >= WARNING_INTERVAL_MS:
            self._warned_at = self.now()
            line = "tracker at %s:%d: %s; subtask %d continues with the global watermark %s and reconnects"
            log.warning(line, self._host, self._port, reason, self.config.subtask, self.current())


def _problem(is_replaced: bool, rejection: str | None) -> str | None:
    """Return what a person has to correct, or None if the member recovers by itself."""
    if is_replaced:
        return (
            "another process reports for this subtask, and this one gets no new global watermark; end one of them, "
            "and give two jobs two names (flink.watermark.group)"
        )
    if rejection == "PARALLELISM_MISMATCH":
        return (
            "the job runs with another parallelism, and this subtask gets no new global watermark; end it, "
            "or give two jobs two names (flink.watermark.group)"
        )
    return None


def _address(properties: Properties) -> tuple[str, int]:
    given = properties.value(TRACKER_ADDRESS)
    host, _, port = (given or "").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigurationError(TRACKER_ADDRESS.key, given, "host:port of the tracker")
    return host.removeprefix("[").removesuffix("]"), int(port)
