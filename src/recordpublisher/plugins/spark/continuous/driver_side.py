"""The driver's side of a query over a spool, as Spark calls it: synchronous, and never in a hurry when there is nothing."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace

from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.spark.python_worker import WorkerLoop
from recordpublisher.plugins.stores.ports import ObjectStore

from .admission import Limits
from .in_driver import FetcherInDriver
from .offset import SpoolOffset
from .planner import SpooledFile, SpoolPlanner

LOG = logging.getLogger("recordpublisher.spark")


class DriverSide:
    """Takes the planner and, in mode DRIVER, the fetcher; owns whether the run ends by itself."""

    def __init__(
        self,
        options: SparkOptions,
        planner: SpoolPlanner,
        fetcher: FetcherInDriver | None,
        loop: WorkerLoop,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._planner = planner
        self._fetcher = fetcher
        self._loop = loop
        self._sleep = sleep
        self._is_available_now = False

    @property
    def figures(self) -> dict[str, object]:
        """Of the last planned batch."""
        return self._planner.figures

    def initial_offset(self) -> SpoolOffset:
        """Before everything."""
        return self._loop.run(self._planner.initial_offset())

    def prepare_available_now(self) -> None:
        """The run ends with what the fetchers have read by now or, with the fetcher here, at the tips (Trigger.AvailableNow)."""
        self._is_available_now = True
        if self._fetcher is None:
            self._loop.run(self._planner.stop_here())
        else:
            self._fetcher.stop_at_tip()

    def next_offset(self, start: SpoolOffset, rows: int | None) -> SpoolOffset | None:
        """The end of the next batch; None: nothing now or, for AvailableNow, no more. Raises: RecordPublisherError."""
        limits = Limits(rows, self._options.max_batch_bytes)
        while True:
            has_ended = self._fetcher is None or self._fetcher.look()  # before the plan: what it read last is in it
            planned = self._loop.run(self._planner.next_offset(start, limits))
            if planned is not None:
                LOG.info("batch %s of query %s: %s", planned.batch, planned.query, self._planner.figures)
                return replace(planned, tasks=self._options.max_tasks or os.cpu_count() or 1)
            if self._is_available_now and has_ended:
                return None
            self._sleep(self._planner.store.look_seconds)  # Spark itself asks again after 10 ms
            if not self._is_available_now:
                return None

    def tasks(self, start: SpoolOffset, end: SpoolOffset) -> list[list[SpooledFile]]:
        """The batch's files, dealt over tasks; a lane's stay together, in order."""
        lanes = self._loop.run(self._planner.files(start, end))
        tasks = min(len(lanes), end.tasks)
        return [[file for lane in lanes[task::tasks] for file in lane] for task in range(tasks)]

    def commit(self, end: SpoolOffset) -> None:
        """A batch is done for good; the spool is tidied up in the background."""
        self._loop.start(self._planner.commit(end))


def driver_side(options: SparkOptions, store: ObjectStore, planner: SpoolPlanner, loop: WorkerLoop) -> DriverSide:
    """Put together for the mode of the options."""
    fetcher = FetcherInDriver(options, store, loop) if options.mode == "CONTINUOUS" else None
    return DriverSide(options, planner, fetcher, loop)
