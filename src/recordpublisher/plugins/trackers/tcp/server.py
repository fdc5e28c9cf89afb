"""TrackerServer: carries the global watermark of any number of jobs, on loopback unless told otherwise (W6, W10, C4)."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from types import TracebackType
from typing import Self

from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError

from .group_registry import Offices
from .server_connection import Visitor

log = logging.getLogger("recordpublisher.tracker")

READ_BYTES = 64 * 1024
ARRIVALS_A_TURN = 16
MOST_AT_THE_DOOR = 4_096
LOOK_SECONDS = 0.25
TALK_SECONDS = 60.0
GREETING_SECONDS = 5.0
"""How long somebody may take to show the token."""
MANY_FILES = 65_536
QUIET_SECONDS = 300.0
"""How long a subtask may say nothing before its connection is closed; a living one speaks at every sync interval."""


class TrackerServer:
    """Owns the listening socket, every connection and every group, from `start` to `close` (or as `async with`).

    `token` is what every subtask must know. `most_connections` bounds those with the token, `most_strangers` those without it yet: when
    there are more, the one that has been there for longest is hung up on. Raises: ConfigurationError for an empty token.
    """

    def __init__(
        self,
        token: str,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        clock: Clock | None = None,
        most_connections: int = 20_000,
        most_strangers: int = 4_000,
    ) -> None:
        if not token:
            raise ConfigurationError("token", None, "a text that every subtask is given, too")
        self.host = host
        self.port = port
        self.token = token
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.offices = Offices(lambda seconds, call: asyncio.get_running_loop().call_later(seconds, call))
        self._clock = clock or SystemClock()
        self._most_connections = most_connections
        self._most_strangers = most_strangers
        self._strangers: dict[Visitor, None] = {}
        self._known: dict[Visitor, None] = {}
        self._refused: dict[str, int] = {}
        self._server: asyncio.Server | None = None
        self._housekeeping: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """What `flink.watermark.tracker.address` is set to."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    async def start(self) -> Self:
        """Listen. Raises: ConfigurationError when the address cannot be had."""
        _allow_many_files()
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            listening = socket.create_server((self.host, self.port), family=family)
        except (OSError, OverflowError) as error:
            raise ConfigurationError("port", self.port, "a free port, or 0 for any", reason=str(error)) from error
        loop = asyncio.get_running_loop()
        # asyncio takes as many connections a turn as it lets wait: a crowd at the door would keep it from those inside
        self._server = await loop.create_server(lambda: Visitor(self), sock=listening, backlog=ARRIVALS_A_TURN)
        listening.listen(MOST_AT_THE_DOOR)
        self.port = self._server.sockets[0].getsockname()[1]
        self._housekeeping = asyncio.create_task(self._keep_house(), name="tracker")
        return self

    async def close(self) -> None:
        """Hang up on everybody; subtasks go on with the last value."""
        if self._housekeeping is not None:
            self._housekeeping.cancel()
            await asyncio.gather(self._housekeeping, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        for visitor in [*self._strangers, *self._known]:
            visitor.hang_up()
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- what visitors say ------------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Milliseconds that only grow."""
        return self._clock.monotonic() * 1000

    def arrived(self, visitor: Visitor) -> None:
        """Somebody connected; the oldest stranger goes when there are too many."""
        self._strangers[visitor] = None
        if len(self._strangers) > self._most_strangers:
            self.refused("crowd")
            next(iter(self._strangers)).hang_up()

    def known(self, visitor: Visitor) -> None:
        """Somebody showed the token."""
        self._strangers.pop(visitor, None)
        self._known[visitor] = None
        if len(self._known) > self._most_connections:
            self.refused("full")
            visitor.hang_up()

    def refused(self, reason: str) -> None:
        """Somebody was refused; the line of the minute says how many."""
        self._refused[reason] = self._refused.get(reason, 0) + 1

    def gone(self, visitor: Visitor) -> None:
        """A connection ended."""
        self._strangers.pop(visitor, None)
        self._known.pop(visitor, None)

    # --- housekeeping -----------------------------------------------------------------------------------------------------------

    async def _keep_house(self) -> None:
        self._talked = self._looked = self._clock.monotonic()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                self._look_around(self._clock.monotonic())
            except Exception:
                log.exception("the tracker goes on, but look at this")

    def _look_around(self, now: float) -> None:
        is_awake, self._looked = now - self._looked < GREETING_SECONDS, now
        self.offices.look(self.now())
        self._hang_up_on_the_silent(is_awake)
        if now - self._talked >= TALK_SECONDS:
            log.info(self._line_of_the_minute(now - self._talked))
            self._talked = now

    def _hang_up_on_the_silent(self, is_awake: bool) -> None:
        if not is_awake:  # we were suspended, and what they said meanwhile is still to be read
            for visitor in [*self._strangers, *self._known]:
                visitor.last_heard = self.now()
        for visitors, seconds in ((self._strangers, GREETING_SECONDS), (self._known, QUIET_SECONDS)):
            since = self.now() - seconds * 1000
            for visitor in [each for each in visitors if each.last_heard < since]:
                self.refused("silent")
                visitor.hang_up()

    def _line_of_the_minute(self, seconds: float) -> str:
        refused = ", ".join(f"{reason} {count}" for reason, count in sorted(self._refused.items())) or "none"
        statements, self.offices.statements, self._refused = self.offices.statements, 0, {}
        return (
            f"{len(self.offices)} groups, {self.offices.seats} subtasks, {len(self._known)} connections, "
            f"{statements / seconds:.0f} reports/s, refused: {refused}"
        )


def _allow_many_files() -> None:
    """Every connection is an open file, and the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if hard == resource.RLIM_INFINITY else min(MANY_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
