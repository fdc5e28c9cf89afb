"""Mode CONTINUOUS: one fetcher on the loop of the process that plans the query, for small streams; no task waits for records."""

from __future__ import annotations

from concurrent.futures import Future

from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.spark.python_worker import WorkerLoop
from recordpublisher.plugins.stores.ports import ObjectStore
from recordpublisher.publishers.clock import SystemClock

from .beginning import begin_generation
from .lane_run import LaneRun


class FetcherInDriver:
    """Owns the one fetcher of a query, from the first call of `look` on. It dies with the process; the spool knows how far it came."""

    def __init__(self, options: SparkOptions, store: ObjectStore, loop: WorkerLoop) -> None:
        self._options = options
        self._store = store
        self._loop = loop
        self._stop_at_tip = False
        self._work: Future[int] | None = None

    def stop_at_tip(self) -> None:
        """Read to the tips and end (Trigger.AvailableNow)."""
        self._stop_at_tip = True

    def look(self) -> bool:
        """Whether it has ended. Raises: what it has ended with; another query over the same spool is a FencedError."""
        if self._work is None:
            self._work = self._loop.start(self._fetch())
        return self._work.done() and self._work.result() >= 0

    async def _fetch(self) -> int:
        generation, options = await begin_generation(self._options, self._store, 1, SystemClock())
        return await LaneRun(options, self._store, generation, 0).run(self._stop_at_tip)
