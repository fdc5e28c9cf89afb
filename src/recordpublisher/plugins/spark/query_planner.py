"""QueryPlanner: the planner as Spark calls it. Every call for an offset returns within five seconds, also while a service is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from .background_call import BackgroundCall, PatientCalls
from .outages import Outage, longest_of, outage_figures
from .planning_calls import ANSWER_SECONDS, PlanningCalls
from .source.batch_planner import POLL_SECONDS, BatchPlanner, NoBatchReason
from .source.offset import BatchOffset
from .source.task_read import TaskPlan
from .source.tasks import task_plans


@dataclass(slots=True)
class QueryPlanner:
    """Returns the old offset while a service is away, so that nothing is planned and the query goes on.

    An AvailableNow run would end with the old offset: it gets batches without tasks instead.
    """

    planner: BatchPlanner
    background: PatientCalls = field(default_factory=BackgroundCall)
    sleep: Callable[[float], None] = time.sleep
    _calls: PlanningCalls = field(init=False)

    def __post_init__(self) -> None:
        self._calls = PlanningCalls(self.planner.options.max_outage_ms, self.planner.clock, self.background)

    @property
    def outage(self) -> Outage | None:
        """What has been down for the longest."""
        return longest_of(self._calls.outage, self.planner.reads.outage)

    def initial_offset(self) -> BatchOffset:
        """Where a new query starts; without shards when they cannot be listed now. Raises: every error that is no outage, at once."""
        try:
            return self._calls.result("initial", self.planner.initial_offset)
        except TimeoutError:
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
            if self._now() >= until and (planned is None or self.outage is not None):
                return replace(start, waits=start.waits + 1)
            self.sleep(POLL_SECONDS)

    def partitions(self, offset: BatchOffset) -> list[TaskPlan]:
        """The tasks of a batch. Services are called only for a batch that was planned before a restart; if they are away, its tasks wait.

        Spark runs a batch up to the first offset it gets, also when that is the initial one because nothing could be planned.
        """
        if offset.waits or offset.batch == 0:
            return []
        try:
            return self._calls.result(f"tasks of {offset.plan}", lambda: self.planner.partitions(offset))
        except TimeoutError:
            return task_plans(offset, self.planner.options, offset.store_token, consumer_arns=None)

    def commit(self, end: BatchOffset) -> None:
        """Spark has committed a batch."""
        self.planner.commit(end)

    def figures(self) -> dict[str, Any] | None:
        """Figures of the last plan, and the outage if there is one; None before the first plan."""
        return {**(self.planner.progress() or {}), **outage_figures(self.outage)} or None

    def _try(self, start: BatchOffset, limit: int | None, until: float) -> BatchOffset | NoBatchReason | None:
        """One try to plan; None in an outage, or while a call still runs."""
        try:
            return self._calls.result(start.plan, lambda: self.planner.next_offset(start, limit), until - self._now())
        except TimeoutError:
            return None

    def _now(self) -> float:
        return self.planner.clock.monotonic()
