"""QueryPlanner: the planner as Spark calls it. Every call for an offset returns within five seconds, also while a service is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from recordpublisher.publishers.errors import RecordPublisherError

from .background_call import BackgroundCall, PatientCalls
from .outages import Outage, OutageWatch, is_outage, longest_of, outage_figures
from .source.batch_offset import BatchOffset
from .source.batch_planner import POLL_SECONDS, BatchPlanner, NoBatchReason
from .source.read_task import TaskPlan

ANSWER_SECONDS = 4.0
"""After this time Spark gets an answer: it can stop a query only between two calls."""
NO_ANSWER_SECONDS = 10.0
"""A call that has run for so long counts as an outage, until it ends."""
NO_ANSWER = "a call that planning needs has no answer"


@dataclass(slots=True)
class QueryPlanner:
    """Owns the outages that planning meets. Meanwhile it returns the old offset, so that nothing is planned and the query goes on.

    An AvailableNow run would end with the old offset: it gets batches without tasks instead.
    """

    planner: BatchPlanner
    calls: PatientCalls = field(default_factory=BackgroundCall)
    sleep: Callable[[float], None] = time.sleep
    _watch: OutageWatch = field(init=False)
    _retry_at: float = 0.0
    _began: float | None = None

    def __post_init__(self) -> None:
        self._watch = OutageWatch(self.planner.options.max_outage_ms, self.planner.clock)

    @property
    def outage(self) -> Outage | None:
        """What has been down for the longest."""
        return longest_of(self._watch.longest, self.planner.reads.outage)

    def initial_offset(self) -> BatchOffset:
        """Where a new query starts; without shards when they cannot be listed now. Raises: every error that is no outage, at once."""
        try:
            return self.calls.result("initial", self.planner.initial_offset, ANSWER_SECONDS)
        except TimeoutError:
            pass
        except RecordPublisherError as error:
            if not is_outage(error):
                raise
            self._on_failure(error)
        return BatchOffset.unlisted(self.planner.clock.now_ms())

    def prepare_available_now(self) -> None:
        """Stop at the tips as of now (Trigger.AvailableNow)."""
        self.planner.is_available_now = True

    def next_offset(self, start: BatchOffset, limit: int | None) -> BatchOffset:
        """The plan of the next batch; `start` when there is none now (Spark calls again) or, for AvailableNow, none any more.

        Raises: OutageError; every error that is no outage, at once.
        """
        until = self._now() + ANSWER_SECONDS
        while True:
            planned = self._try(start, limit, until)
            if isinstance(planned, BatchOffset):
                return planned
            if planned is NoBatchReason.FINISHED:
                return start
            if not self.planner.is_available_now:
                self.sleep(POLL_SECONDS)  # Spark itself calls again after 10 ms
                return start
            if self._now() >= until and self.outage is not None:
                return replace(start, waits=start.waits + 1)
            self.sleep(POLL_SECONDS)

    def partitions(self, offset: BatchOffset) -> list[TaskPlan]:
        """The tasks of a batch. It calls services only for a batch that was planned before a restart, and then waits for them.

        Spark runs a batch up to the first offset it gets, also when that is the initial one because nothing could be planned.
        """
        if offset.waits or offset.batch == 0:
            return []
        return self._watch.wait_out(lambda: self.planner.partitions(offset), self.sleep)

    def commit(self, end: BatchOffset) -> None:
        """Spark has committed a batch."""
        self.planner.commit(end)

    def figures(self) -> dict[str, Any] | None:
        """Figures of the last plan, and the outage if there is one; None before the first plan."""
        return {**(self.planner.progress() or {}), **outage_figures(self.outage)} or None

    def _try(self, start: BatchOffset, limit: int | None, until: float) -> BatchOffset | NoBatchReason:
        """One try to plan. An outage, or a call that still runs, is no plan."""
        if self._now() < self._retry_at:
            return NoBatchReason.NOT_YET
        self._began = self._began or self._now()
        try:
            seconds = max(0.0, until - self._now())
            planned = self.calls.result(start.plan, lambda: self.planner.next_offset(start, limit), seconds)
        except TimeoutError:
            if self._now() - self._began >= NO_ANSWER_SECONDS:
                self._watch.on_failure(NO_ANSWER)
            return NoBatchReason.NOT_YET
        except RecordPublisherError as error:
            self._began = None
            if not is_outage(error):
                raise
            self._on_failure(error)
            return NoBatchReason.NOT_YET
        self._began = None
        self._watch.on_success()
        return planned

    def _on_failure(self, error: RecordPublisherError) -> None:
        self._retry_at = self._now() + self._watch.on_failure(error)

    def _now(self) -> float:
        return self.planner.clock.monotonic()
