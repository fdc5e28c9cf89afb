"""QueryDriver: the driver's side of a query in mode CONTINUOUS, as Spark calls it."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.clock import Clock

from ..background_call import BackgroundCall, PatientCalls
from ..options import SparkOptions
from ..outages import longest_of, outage_figures
from ..planning_calls import ANSWER_SECONDS, PlanningCalls
from ..python_worker import WorkerLoop
from .back_pressure import BackPressure
from .driver_fetcher import BackgroundFetcher, DriverFetcher
from .row_file import StoredFile
from .wal_identity import check_location
from .wal_offset import WalOffset
from .wal_planner import Limits, WalPlanner

LOG = logging.getLogger("recordpublisher.spark")
T = TypeVar("T")


class QueryDriver:
    """Owns the query's planner and fetcher. Calls the planner on the worker's loop, and pauses when there is nothing to plan.

    No call takes longer than some five seconds, also while the store is away: Spark can stop a query only between two calls.
    """

    def __init__(
        self,
        options: SparkOptions,
        planner: WalPlanner,
        fetcher: BackgroundFetcher,
        pressure: BackPressure,
        loop: WorkerLoop,
        sleep: Callable[[float], None] = time.sleep,
        background: PatientCalls | None = None,
    ) -> None:
        """`sleep` and `background`, which makes the calls of the planner, are for tests."""
        self._options = options
        self._planner = planner
        self._fetcher = fetcher
        self._pressure = pressure
        self._loop = loop
        self._sleep = sleep
        self._is_available_now = False
        self._is_location_checked = False
        self._calls = PlanningCalls(options.max_outage_ms, planner.clock, background or BackgroundCall())

    @property
    def figures(self) -> dict[str, object]:
        """Progress figures of the last planned batch and of the fetcher, and the outage if there is one."""
        outage = longest_of(self._calls.outage, self._fetcher.outage)
        return {**self._planner.figures, **self._fetcher.figures, **outage_figures(outage)}

    def initial_offset(self) -> WalOffset:
        """The offset before the first entry, of a log that is not known yet while the store is away. Raises: RecordPublisherError."""
        try:
            return self._result("initial", self._planner.initial_offset)
        except TimeoutError:
            return self._planner.start_of_unknown_log()

    def prepare_available_now(self) -> None:
        """The run ends at the tips of the shards (Trigger.AvailableNow)."""
        self._is_available_now = True

    def next_offset(self, start: WalOffset, rows: int | None) -> WalOffset:
        """The end of the next batch; `start` when there is none now or, for AvailableNow, none any more. Raises: RecordPublisherError.

        An AvailableNow run that has to wait gets batches without files: it would end with the old offset.
        """
        limits = Limits(rows, self._options.max_batch_bytes)
        until = self._now() + ANSWER_SECONDS
        while True:
            self._fetcher.start(self._is_available_now)
            has_ended = self._fetcher.has_ended()  # before the plan, so that the plan has its last rows
            name = f"batch after {start.batch}, fetcher {'has ended' if has_ended else 'runs'}"
            try:
                planned = self._result(name, partial(self._plan, start, limits), until - self._now())
            except TimeoutError:
                is_finished = False
            else:
                if planned is not None:
                    LOG.info("batch %s of query %s: %s", planned.batch, planned.query, self._planner.figures)
                    return planned
                is_finished = has_ended
            if self._is_available_now and is_finished:
                return start
            if self._is_available_now and self._now() >= until:
                return replace(start, waits=start.waits + 1)
            self._sleep(self._planner.store.poll_seconds)  # Spark itself calls again after 10 ms
            if not self._is_available_now:
                return start

    def files(self, start: WalOffset, end: WalOffset) -> list[StoredFile] | None:
        """The batch's files. One task reads them all, so that the rows of a shard stay in order (S2).

        None while the store is away: then the task waits for it, and Spark can end a task at any time.
        """
        if start.entry == end.entry:
            return []
        try:
            return self._result(f"files of {end.batch}", partial(self._planner.files, start, end))
        except TimeoutError:
            return None

    def commit(self, end: WalOffset) -> None:
        """Spark has committed a batch; older entries are purged in the background."""
        self._loop.start(self._planner.commit(end))

    def _result(self, name: str, work: Callable[[], Awaitable[T]], seconds: float = ANSWER_SECONDS) -> T:
        """Raises: TimeoutError when there is no result now; as `PlanningCalls.result`."""
        return self._calls.result(name, lambda: self._loop.run(self._checked(work)), seconds)

    async def _checked(self, work: Callable[[], Awaitable[T]]) -> T:
        if not self._is_location_checked:
            await check_location(self._planner.store, self._options.metadata_location)
            self._is_location_checked = True
        return await work()

    async def _plan(self, start: WalOffset, limits: Limits) -> WalOffset | None:
        self._pressure.read_up_to(start.entry)
        return await self._planner.next_offset(start, limits)

    def _now(self) -> float:
        return self._planner.clock.monotonic()


def query_driver(options: SparkOptions, store: WriteOnceStore, loop: WorkerLoop, clock: Clock) -> QueryDriver:
    """The driver's side of a query, built from its options."""
    pressure = BackPressure(options.continuous.limit_bytes)
    planner = WalPlanner(store, clock, options.retain)
    return QueryDriver(options, planner, DriverFetcher(options, store, pressure, loop, clock), pressure, loop)
