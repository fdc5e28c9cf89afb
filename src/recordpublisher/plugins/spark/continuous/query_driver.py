"""QueryDriver: the driver's side of a query in mode CONTINUOUS, as Spark calls it. Its fetcher runs beside it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.clock import Clock

from ..options import SparkOptions
from ..python_worker import WorkerLoop
from .back_pressure import BackPressure
from .row_file import StoredFile
from .wal_fetcher import WalFetcher
from .wal_offset import WalOffset
from .wal_planner import Limits, WalPlanner

LOG = logging.getLogger("recordpublisher.spark")


class BackgroundFetcher(Protocol):
    """What the query needs of its fetcher."""

    def start(self, stop_at_tip: bool) -> None:
        """Begin to read; nothing if it has begun."""

    def has_ended(self) -> bool:
        """Whether it has read to the tips. Raises: what it has ended with."""


class DriverFetcher:
    """Owns the fetcher on the loop of the driver's Python process, from `start` on. It dies with the process; the log has its state."""

    def __init__(
        self, options: SparkOptions, store: WriteOnceStore, pressure: BackPressure, loop: WorkerLoop, clock: Clock
    ) -> None:
        self._options = options
        self._store = store
        self._pressure = pressure
        self._loop = loop
        self._clock = clock
        self._work: Future[int] | None = None

    def start(self, stop_at_tip: bool) -> None:
        """Begin to read on the loop."""
        if self._work is None:
            self._work = self._loop.start(self._fetch(stop_at_tip))

    def has_ended(self) -> bool:
        """Raises: RecordPublisherError; FencedError when another start of the query has taken over."""
        if self._work is None or not self._work.done():
            return False
        self._work.result()
        return True

    async def _fetch(self, stop_at_tip: bool) -> int:
        fetcher = await WalFetcher.take_over(self._options, self._store, self._pressure, self._clock)
        return await fetcher.run(stop_at_tip)


class QueryDriver:
    """Owns whether the run ends by itself; calls the planner on the worker's loop, and waits a little when there is nothing."""

    def __init__(
        self,
        options: SparkOptions,
        planner: WalPlanner,
        fetcher: BackgroundFetcher,
        pressure: BackPressure,
        loop: WorkerLoop,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._planner = planner
        self._fetcher = fetcher
        self._pressure = pressure
        self._loop = loop
        self._sleep = sleep
        self._is_available_now = False

    @property
    def figures(self) -> dict[str, object]:
        """Of the last planned batch."""
        return self._planner.figures

    def initial_offset(self) -> WalOffset:
        """Before everything."""
        return self._loop.run(self._planner.initial_offset())

    def prepare_available_now(self) -> None:
        """The run ends at the tips of the shards (Trigger.AvailableNow)."""
        self._is_available_now = True

    def next_offset(self, start: WalOffset, rows: int | None) -> WalOffset | None:
        """The end of the next batch; None: nothing now or, for AvailableNow, no more. Raises: RecordPublisherError."""
        limits = Limits(rows, self._options.max_batch_bytes)
        while True:
            self._fetcher.start(self._is_available_now)
            has_ended = self._fetcher.has_ended()  # before the plan, so that what it read last is in the plan
            planned = self._loop.run(self._plan(start, limits))
            if planned is not None:
                LOG.info("batch %s of query %s: %s", planned.batch, planned.query, self._planner.figures)
                return planned
            if self._is_available_now and has_ended:
                return None
            self._sleep(self._planner.store.poll_seconds)  # Spark itself calls again after 10 ms
            if not self._is_available_now:
                return None

    def files(self, start: WalOffset, end: WalOffset) -> list[StoredFile]:
        """The batch's files. One task hands them over, so that the rows of a shard stay in order (S2)."""
        return self._loop.run(self._planner.files(start, end))

    def commit(self, end: WalOffset) -> None:
        """A batch is done for good; what is older is purged in the background."""
        self._loop.start(self._planner.commit(end))

    async def _plan(self, start: WalOffset, limits: Limits) -> WalOffset | None:
        self._pressure.read_up_to(start.entry)
        return await self._planner.next_offset(start, limits)


def query_driver(options: SparkOptions, store: WriteOnceStore, loop: WorkerLoop, clock: Clock) -> QueryDriver:
    """Put together for a query."""
    pressure = BackPressure(options.continuous.limit_bytes)
    planner = WalPlanner(store, clock, options.retain)
    return QueryDriver(options, planner, DriverFetcher(options, store, pressure, loop, clock), pressure, loop)
