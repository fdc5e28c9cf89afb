"""What the tasks of one generation reach on the driver: the tracker and the lifeline."""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import socket
from collections.abc import Callable
from dataclasses import replace

from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.trackers.tcp.server import TrackerServer
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.table import TRACKER, TRACKER_ADDRESS, TRACKER_TOKEN

from .generation import Generation
from .lane_task import LaneJob
from .lifeline import LaneFailure, LifelineServer

LOG = logging.getLogger("recordpublisher.spark")
MISSING_SECONDS = 30.0
PORTS = "a number from 1 to 65534, free on the driver with the one after it, or 0 for any"


class Switchboard:
    """Owns both servers between `open` and `close`; listens at `bind`, and tasks come to `host` (C4)."""

    def __init__(self, host: str, bind: str, cancel: Callable[[], None], port: int = 0) -> None:
        """`cancel` ends the tasks from outside, in a thread: one of them has failed for good.

        The lifeline listens on `port`, the tracker on the next one (0: any).
        """
        self._host = host
        self._bind = bind
        self._cancel = cancel
        self._token = secrets.token_hex(16)
        self._port = port
        self._tracker = TrackerServer(self._token, bind, port + 1 if port else 0)
        self._lifeline = LifelineServer(self._token, bind, self._lane_failed, port)
        self._notice: asyncio.TimerHandle | None = None
        self.failures: list[LaneFailure] = []

    async def open(self, options: SparkOptions, generation: Generation) -> LaneJob:
        """Listen; answers what the tasks are told. A tracker that the properties name is left as it is.

        Raises: ConfigurationError for an address that is not here and a port that is taken, OSError.
        """
        await self._listen()
        self._notice = asyncio.get_running_loop().call_later(MISSING_SECONDS, self._count, generation.lanes)
        if (options.properties.value(TRACKER) or "").upper() == "IN_PROCESS":
            await self._tracker.start()
            tracked = {
                TRACKER.key: "TCP",
                TRACKER_ADDRESS.key: f"{self._host}:{self._tracker.port}",
                TRACKER_TOKEN.key: self._token,
            }
            options = replace(options, properties=options.properties.merged(tracked))
        return LaneJob(options, generation, self._host, self._lifeline.port, self._token)

    async def _listen(self) -> None:
        try:
            await self._lifeline.start()
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                raise ConfigurationError("port", self._port, PORTS, reason=str(error)) from error
            if not isinstance(error, socket.gaierror) and error.errno not in (errno.EADDRNOTAVAIL, None):
                raise
            valid = "an address of the driver's machine, where executors reach it as spark.driver.host"
            raise ConfigurationError("spark.driver.bindAddress", self._bind, valid, reason=str(error)) from error

    @property
    def lanes(self) -> set[int]:
        """The lanes that run."""
        return self._lifeline.lanes

    def stop_lanes(self) -> None:
        """Tell the tasks to end well."""
        self._lifeline.stop_lanes()

    async def close(self) -> None:
        """Hang up."""
        if self._notice is not None:
            self._notice.cancel()
        await self._lifeline.close()
        await self._tracker.close()

    def _lane_failed(self, failure: LaneFailure) -> None:
        LOG.warning("lane %s failed: %s", failure.lane, failure.reason)
        self.failures.append(failure)
        if failure.is_fatal:
            asyncio.get_running_loop().run_in_executor(None, self._cancel)

    def _count(self, wanted: int) -> None:
        missing = sorted(set(range(wanted)) - self.lanes)
        if missing:
            line = "%s of %s fetchers do not run yet (%s): each keeps a slot, and there are fewer free ones; their shards are not read"
            LOG.warning(line, len(missing), wanted, missing)


def checked_port(port: int) -> int:
    """The port that was asked for. Raises: ConfigurationError for what is none."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65_534:
        raise ConfigurationError("port", port, PORTS)
    return port
