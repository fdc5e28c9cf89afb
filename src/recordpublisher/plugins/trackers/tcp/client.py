"""TcpTracker: a subtask's global watermark from a tracker that is reached over TCP (W6, W10)."""

from __future__ import annotations

import asyncio
import logging

from recordpublisher.fetcher.coordination.heartbeat_messages import Answer, Statement
from recordpublisher.fetcher.coordination.remote_tracker import RemoteTracker
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties import table
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.retry import RetryPolicy

from .client_connection import Link

log = logging.getLogger("recordpublisher.tracker")

CONNECT_SECONDS = 5.0
FAREWELL_SECONDS = 1.0
"""How long a leaver waits for its last word to be sent."""
LONGEST_PAUSE_MS = 5_000
MINUTE = 60.0


class TcpTracker(RemoteTracker):
    """Owns a subtask's connection to the tracker, and makes a new one whenever it is lost or silent.

    Nothing here blocks or raises for trouble on the way: without a connection the last value stands. A warning says so once a minute.
    Raises: ConfigurationError without `flink.watermark.tracker.address` (host:port) and `.token` (C2).
    """

    def __init__(self, properties: Properties, clock: Clock | None = None) -> None:
        super().__init__(properties, clock)
        self._host, self._port = _address(properties)
        token = properties.value(table.TRACKER_TOKEN)
        if token is None:
            raise ConfigurationError(table.TRACKER_TOKEN.key, None, "the token that the tracker was started with")
        self._token = token
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._connected_at = self._warned_at = float("-inf")
        self._failures = 0
        self._trouble = ""

    async def open(self, subtask: int, parallelism: int) -> None:
        """Take a place and begin to connect, without waiting for it."""
        await super().open(subtask, parallelism)
        self._task = asyncio.create_task(self._stay_connected(), name=f"tracker of subtask {subtask}")

    def send(self, statement: Statement) -> None:
        """Send if connected; a connection on which nothing is heard is given up."""
        if self._link is not None:
            is_silent = self.now() - self._connected_at > self.silence_ms and not self.is_reachable
            self._link.hang_up() if is_silent else self._link.send(statement)

    def hear(self, answer: Answer) -> None:
        """Take an answer; say once what a person has to look at."""
        self._failures = 0
        super().hear(answer)
        self._say_what_is_wrong()

    async def close(self) -> None:
        """Leave, and hang up."""
        await super().close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._link is not None:
            self._link.close()
            try:
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await asyncio.shield(self._link.ended)
            except TimeoutError:
                self._link.hang_up()

    async def _stay_connected(self) -> None:
        # a tracker that is back must not lose patience before we try again
        longest = min(LONGEST_PAUSE_MS, self.place.timeout_ms // 6)
        pauses = RetryPolicy(max_retries=0, base_ms=100, max_ms=longest, exponent=2.0)
        while True:
            try:
                await self._one_connection()
            except (OSError, UnicodeError) as error:  # a timeout is an OSError, a host that cannot be a name the other
                self._warn(str(error) or type(error).__name__)
            await asyncio.sleep(pauses.delay_seconds(self._failures))
            self._failures += 1

    async def _one_connection(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS):
            _, link = await loop.create_connection(
                lambda: Link(self._token, self.reconnected, self.hear), self._host, self._port
            )
        self._link, self._connected_at = link, self.now()
        try:
            self.send_due()
            await asyncio.shield(link.ended)  # a cancellation of ours is not the end of the connection
        finally:
            if link.ended.done():
                self._link = None
        self._warn(link.reason)

    def _say_what_is_wrong(self) -> None:
        trouble = _TROUBLES["OLD" if self.membership.is_replaced else self.membership.refusal]
        if trouble and trouble != self._trouble:
            log.error("subtask %d of group %s: %s", self.place.subtask, self.place.group, trouble)
        self._trouble = trouble

    def _warn(self, reason: str) -> None:
        if self.now() - self._warned_at >= MINUTE * 1000:
            self._warned_at = self.now()
            line = "tracker at %s:%d: %s; subtask %d goes on with the global watermark %s and tries again"
            log.warning(line, self._host, self._port, reason, self.place.subtask, self.current())


_TROUBLES = {
    "": "",
    "GENERATION": "",
    "OLD": "another process speaks for this subtask, and the global watermark stands for this one; end one of them, "
    "and give two jobs two names (flink.watermark.group)",
    "PARALLELISM": "the job runs with another parallelism, and the global watermark stands for this subtask; end it, "
    "or give two jobs two names (flink.watermark.group)",
}


def _address(properties: Properties) -> tuple[str, int]:
    given = properties.value(table.TRACKER_ADDRESS)
    host, _, port = (given or "").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigurationError(table.TRACKER_ADDRESS.key, given, "host:port of the tracker")
    return host.removeprefix("[").removesuffix("]"), int(port)
