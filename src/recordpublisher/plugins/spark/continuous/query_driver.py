"""QueryDriver: the driver's side of a query in mode CONTINUOUS, as Spark calls it; and the fetcher that runs in the same process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import RecordPublisherError

from ..options import SparkOptions
from ..outages import Outage, OutageWatch, is_outage, longest_of, outage_figures
from ..python_worker import WorkerLoop
from .back_pressure import BackPressure
from .row_file import StoredFile
from .wal_fetcher import WalFetcher
from .wal_offset import WalOffset
from .wal_planner import Limits, WalPlanner

LOG = logging.getLogger("recordpublisher.spark")
STEADY_SECONDS = 60.0
"""A fetcher that has run for so long has met no outage, or its outage is over: its retries end earlier by default."""
LONGEST_PAUSE_SECONDS = 4.0
"""Spark can stop a query only between two calls."""


class BackgroundFetcher(Protocol):
    """What the query calls of its fetcher."""

    def start(self, stop_at_tip: bool) -> None:
        """Begin to read; does nothing when it has begun."""

    def has_ended(self) -> bool:
        """Whether it has read to the tips of all shards. Raises: the error that ended it."""

    @property
    def outage(self) -> Outage | None:
        """What keeps it from reading."""


class DriverFetcher:
    """Owns the fetcher, on the event loop of the driver's Python process. It ends with the process; its state is in the log.

    A fetcher that ends because a service is away is started again, as a job's supervisor would, for at most `maxOutage`.
    """

    def __init__(
        self, options: SparkOptions, store: WriteOnceStore, pressure: BackPressure, loop: WorkerLoop, clock: Clock
    ) -> None:
        self._options = options
        self._store = store
        self._pressure = pressure
        self._loop = loop
        self._clock = clock
        self._watch = OutageWatch(options.max_outage_ms, clock)
        self._work: Future[int] | None = None

    @property
    def outage(self) -> Outage | None:
        """The outage that ended the last start, until the next one has run for a minute."""
        return self._watch.longest

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
        while True:
            steady = asyncio.get_running_loop().call_later(STEADY_SECONDS, self._watch.on_success)
            try:
                fetcher = await WalFetcher.take_over(self._options, self._store, self._pressure, self._clock)
                return await fetcher.run(stop_at_tip)
            except RecordPublisherError as error:
                if not is_outage(error):
                    raise
                pause = self._watch.on_failure(error)
            finally:
                steady.cancel()
            await asyncio.sleep(pause)


class QueryDriver:
    """Owns the query's planner and fetcher. Calls the planner on the worker's loop, and pauses when there is nothing to plan."""

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
        self._watch = OutageWatch(options.max_outage_ms, planner.clock)

    @property
    def figures(self) -> dict[str, object]:
        """Progress figures of the last planned batch, and the outage if there is one."""
        outage = longest_of(self._watch.longest, self._fetcher.outage)
        return {**self._planner.figures, **outage_figures(outage)}

    def initial_offset(self) -> WalOffset:
        """The offset before the first entry."""
        return self._watch.wait_out(lambda: self._loop.run(self._planner.initial_offset()), self._sleep)

    def prepare_available_now(self) -> None:
        """The run ends at the tips of the shards (Trigger.AvailableNow)."""
        self._is_available_now = True

    def next_offset(self, start: WalOffset, rows: int | None) -> WalOffset | None:
        """The end of the next batch; None when there is none now or, for AvailableNow, none any more. Raises: RecordPublisherError."""
        limits = Limits(rows, self._options.max_batch_bytes)
        while True:
            self._fetcher.start(self._is_available_now)
            has_ended = self._fetcher.has_ended()  # before the plan, so that the plan has its last rows
            planned, pause = self._try_plan(start, limits)
            if planned is not None:
                LOG.info("batch %s of query %s: %s", planned.batch, planned.query, self._planner.figures)
                return planned
            if self._is_available_now and has_ended and not pause:
                return None
            self._sleep(pause or self._planner.store.poll_seconds)  # Spark itself calls again after 10 ms
            if not self._is_available_now:
                return None

    def files(self, start: WalOffset, end: WalOffset) -> list[StoredFile]:
        """The batch's files. One task reads them all, so that the rows of a shard stay in order (S2)."""
        return self._watch.wait_out(lambda: self._loop.run(self._planner.files(start, end)), self._sleep)

    def commit(self, end: WalOffset) -> None:
        """Spark has committed a batch; older entries are purged in the background."""
        self._loop.start(self._planner.commit(end))

    def _try_plan(self, start: WalOffset, limits: Limits) -> tuple[WalOffset | None, float]:
        """The next batch, if there is one; and how long to wait when the log cannot be listed because its store is away."""
        try:
            planned = self._loop.run(self._plan(start, limits))
        except RecordPublisherError as error:
            if not is_outage(error):
                raise
            return None, min(self._watch.on_failure(error), LONGEST_PAUSE_SECONDS)
        self._watch.on_success()
        return planned, 0.0

    async def _plan(self, start: WalOffset, limits: Limits) -> WalOffset | None:
        self._pressure.read_up_to(start.entry)
        return await self._planner.next_offset(start, limits)


def query_driver(options: SparkOptions, store: WriteOnceStore, loop: WorkerLoop, clock: Clock) -> QueryDriver:
    """The driver's side of a query, built from its options."""
    pressure = BackPressure(options.continuous.limit_bytes)
    planner = WalPlanner(store, clock, options.retain)
    return QueryDriver(options, planner, DriverFetcher(options, store, pressure, loop, clock), pressure, loop)
