"""The lifeline: a connection from each lane's task to the driver. Its end means that the driver is gone; a word on it means stop."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recordpublisher.publishers.errors import RecordPublisherError

LOG = logging.getLogger("recordpublisher.spark")
GREETING_SECONDS = 5.0
CONNECT_SECONDS = 10.0
MOST_STRANGERS = 100
STOP = b"stop\n"
NONSENSE = (ValueError, KeyError, TypeError, AttributeError)
"""What reading raises for anything but our own words: no JSON, another JSON, a line without end."""
KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
"""A host that vanishes without a word is noticed within half a minute."""


class DriverGoneError(RecordPublisherError):
    """The driver does not answer any more: its fetchers end, the next start goes on behind them."""


@dataclass(frozen=True, slots=True)
class LaneFailure:
    """What a lane died of; `is_fatal`: a new start would die of it too."""

    lane: int
    reason: str
    is_fatal: bool


class LifelineServer:
    """The driver's end. Owns the connections, who of the lanes is there, and what they died of."""

    def __init__(self, token: str, host: str, failed: Callable[[LaneFailure], None], port: int = 0) -> None:
        """`failed` is called on the loop for each failure that a lane tells of; port 0 is any that is free."""
        self._token = token
        self._host = host
        self._asked_port = port
        self._failed = failed
        self._talks: set[asyncio.Task[Any]] = set()
        self._lanes: dict[asyncio.StreamWriter, int] = {}
        self._is_stopping = False
        self._server: asyncio.Server | None = None

    @property
    def lanes(self) -> set[int]:
        """Who is there."""
        return set(self._lanes.values())

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen. Raises: OSError."""
        self._server = await asyncio.start_server(self._welcome, self._host, self._asked_port)

    def stop_lanes(self) -> None:
        """Tell every lane, and who comes later, to end well."""
        self._is_stopping = True
        for writer in self._lanes:
            writer.write(STOP)

    async def close(self) -> None:
        """Hang up."""
        if self._server is not None:
            self._server.close()
        for talk in list(self._talks):
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        if len(self._talks) - len(self._lanes) >= MOST_STRANGERS:
            writer.close()
            return
        self._talks.add(talk)
        try:
            await self._talk(reader, writer)
        except (OSError, asyncio.CancelledError, *NONSENSE):  # a timeout is an OSError
            pass
        finally:
            self._lanes.pop(writer, None)
            self._talks.discard(talk)
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(GREETING_SECONDS):
            greeting = json.loads(await reader.readline())
        if not hmac.compare_digest(str(greeting.get("token")), self._token):
            return
        lane = int(greeting["lane"])
        self._lanes[writer] = lane
        if self._is_stopping:
            writer.write(STOP)
        while line := await reader.readline():
            said = json.loads(line)
            self._failed(LaneFailure(lane, str(said["reason"]), bool(said["isFatal"])))


class Lifeline:
    """A lane's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, host: str, port: int, token: str, lane: int) -> Lifeline:
        """Say who is there. Raises: DriverGoneError."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(host, port)
        except OSError as error:  # a timeout is one
            raise DriverGoneError(f"the driver at {host}:{port} cannot be reached: {error}") from error
        plug: socket.socket = writer.get_extra_info("socket")
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEP_ALIVE:
            plug.setsockopt(socket.IPPROTO_TCP, option, value)
        writer.write(json.dumps({"token": token, "lane": lane}).encode() + b"\n")
        return cls(reader, writer)

    async def until_cut(self) -> bool:
        """Wait for the end; whether it was a word of the driver's."""
        try:
            return await self._reader.readline() == STOP
        except (OSError, ValueError):
            return False

    async def tell(self, reason: str, is_fatal: bool) -> None:
        """Say what the lane died of; a driver that is gone does not matter."""
        try:
            self._writer.write(json.dumps({"reason": reason[:10_000], "isFatal": is_fatal}).encode() + b"\n")
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._writer.drain()
        except OSError as error:
            LOG.debug("the driver is gone: %s", error)

    def close(self) -> None:
        """Hang up."""
        self._writer.close()
