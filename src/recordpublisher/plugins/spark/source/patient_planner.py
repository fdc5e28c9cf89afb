"""Answers Spark's calls for offsets within five seconds. It calls `BatchPlanner`, and waits and tries again between the steps.

A call of Spark must not take longer, even in an outage, because Spark can stop a query only between two calls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import RecordPublisherError, StateError

from ..outages import Outage, OutageWatch, is_outage, outage_figures, retries_not_logged
from .batch_plan import Decision, Wait, Watch
from .batch_planner import BatchPlanner
from .new_data_watch import LookResult
from .offset import BatchOffset
from .task_plans import TaskPlan, task_plans

T = TypeVar("T")
ANSWER_SECONDS = 4.0
"""Longest time in which a call of Spark is answered (seconds)."""
NO_ANSWER_SECONDS = 10.0
"""How long a call to a service may run before it counts as an outage (seconds)."""
NO_ANSWER = "a call that planning a batch needs has not been answered"
POLL_SECONDS = 0.05
"""Pause in a call of Spark before the planner is asked again for the next step (seconds)."""
FIRST_LOOK_SECONDS = 1.0
"""How long the first look after a batch that had records may take (seconds). A look is one read of every shard."""
SETTLED_SECONDS = 2.0
"""How long a stream must be quiet before a batch without rows shows the changed figures (seconds).

With a shorter time, a slow stream would get one such batch after each of its records.
"""


@dataclass(slots=True)
class PatientPlanner:
    """Carries out the steps that `BatchPlanner` decides. Only this class waits until the time that a step names.

    While a service is unreachable it returns the old offset. Then nothing is planned, and the query continues. An AvailableNow run would
    end with the old offset, so it gets batches without tasks instead.
    """

    planner: BatchPlanner
    background: BackgroundCall = field(default_factory=lambda: BackgroundCall())  # noqa: PLW0108 - the class is below
    sleep: Callable[[float], None] = time.sleep
    _calls: PlanningCalls = field(init=False)
    _quiet_since: float | None = None
    """When a read of every shard first found nothing since the last batch (seconds of the monotonic clock); None if it has not."""
    _late_since: float | None = None
    """When the first of the current series of late looks (reads of every shard) ended (monotonic seconds); None if the last was in time."""

    def __post_init__(self) -> None:
        self._calls = PlanningCalls(self.planner.outages, self.planner.clock, self.background)

    @property
    def outage(self) -> Outage | None:
        """The outage that began first, or None if there is none."""
        return self.planner.outages.longest

    def initial_offset(self) -> BatchOffset:
        """Return the offset at which a new query starts. It has no shards if they cannot be listed now.

        Raises: OutageError if a service was unreachable for too long. Other errors are raised at once.
        """
        began_ms = self.planner.clock.now_ms()
        self.planner.outages.begin(f"a new query of {self._streams()}", is_first_start=True)
        initial = self._calls.result("initial", lambda: self.planner.initial_offset(began_ms))
        return initial or BatchOffset.unlisted(began_ms)

    def prepare_available_now(self) -> None:
        """Make this a run with Trigger.AvailableNow. It ends at the tips (newest records) that the shards have at the next plan."""
        self.planner.prepare_available_now()

    def next_offset(self, previous: BatchOffset, limit: int | None, *, is_first: bool = False) -> BatchOffset:
        """Return the plan of the next batch. Return `previous` if there is none now, or if an AvailableNow run has ended.

        When `previous` is returned, `processAllAvailable` assumes that all records put so far are in the sink. Before that, every shard is
        read once more. If they cannot be read in time, a batch without tasks makes Spark ask again, for at most `NO_ANSWER_SECONDS`. If a
        service is unreachable, or if the sink does not read its batches, `previous` is returned at once.

        - `limit`: the most records of the batch, or None if there is no limit.
        - `is_first`: whether this may be Spark's only call. Then a batch is planned even if nothing is known to be new, unless a service is
          unreachable. A call to a service is waited for until it counts as an outage.

        Raises: OutageError if a service was unreachable for too long. Other errors are raised at once.
        """
        planner, now = self.planner, self.planner.clock.monotonic
        name = f"query {previous.query} of {self._streams()}"
        planner.outages.begin(name, is_first_start=previous.is_unlisted)
        until, found_new = now() + ANSWER_SECONDS, False
        while True:
            planned = partial(planner.step, previous, limit, found_new=found_new or is_first)
            step = self._calls.result(previous.plan, planned, until - now())
            if isinstance(step, BatchOffset):
                self._quiet_since = None
                return step
            if step is Decision.FINISH:
                return _without_rows(previous) if planner.has_news() else previous
            if isinstance(step, Watch):
                look = self._look(step, until)
                found_new = look is LookResult.FOUND or (step.first_look and look is not LookResult.NOTHING)
                if found_new:
                    self._late_since = None
                    continue
                is_shown = self._is_settled() and planner.has_news()
                return _without_rows(previous) if is_shown or self._may_be_in_time(look) else previous
            self.sleep(POLL_SECONDS)
            is_late, is_away = now() >= until, self.outage is not None
            may_be_new = not is_away and (step is None or (isinstance(step, Wait) and step.may_be_new))
            # With `is_first`, wait for a call in the background until it counts as an outage.
            runs_on = is_first and step is None and not is_away
            if planner.is_available_now:
                if is_late and (is_away or step is None):
                    return _without_rows(previous)
            elif not runs_on and (is_late or not (is_first or may_be_new)):
                return _without_rows(previous) if may_be_new else previous

    def partitions(self, start: BatchOffset, end: BatchOffset) -> list[TaskPlan]:
        """Return the tasks of the batch with the plan `end`.

        Services are called only if the batch was planned before a restart. If they are unreachable, its tasks wait for them. Batch 0 has no
        tasks. Spark runs it if nothing could be planned before.

        Raises: StateError if the plan of `end` was not made after the batch of `start`.
        """
        if not end.follows(start):
            raise StateError(
                f"Spark asks for the rows after batch {start.batch} ({start.plan}), and batch {end.batch} was planned after another one "
                f"({end.after}), so the checkpoint seems to be a mixture of two: restore all files of one of them"
            )
        if end.waits or end.batch == 0:
            return []
        tasks = self._calls.result(f"tasks of {end.plan}", lambda: self.planner.partitions(end))
        return task_plans(end, self.planner.options, end.store_token, consumer_arns=None) if tasks is None else tasks

    def commit(self, end: BatchOffset) -> None:
        """Remove old claims (what tasks have read), because Spark has committed the batch of `end`."""
        with retries_not_logged():
            self.planner.commit(end)

    def figures(self) -> dict[str, Any] | None:
        """Return the figures of the last plan, and the outage if there is one. Return None before the first plan."""
        return {**(self.planner.progress() or {}), **outage_figures(self.outage)} or None

    def _streams(self) -> str:
        return ", ".join(sorted(self.planner.options.stream_names))

    def _look(self, step: Watch, until: float) -> LookResult:
        """Read every shard once. If the stream was already quiet, the reads are spread over a `probeInterval`."""
        if step.first_look:
            return self.planner.service.look(FIRST_LOOK_SECONDS)
        pause = 0.0 if self._quiet_since is None else self.planner.options.probe_ms / 1000
        return self.planner.service.look(max(0.0, until - self.planner.clock.monotonic()), pause)

    def _may_be_in_time(self, look: LookResult) -> bool:
        """Return whether a read of every shard was late, and the next one may be in time.

        After `NO_ANSWER_SECONDS` of late reads return False, because Spark commits an empty batch after each of them.

        - `look`: the result of the last read of every shard.
        """
        if look is not LookResult.LATE:
            self._late_since = None
            return False
        now = self.planner.clock.monotonic()
        # The time counts from the end of the first late read: that read may have been late because this process was stopped.
        self._late_since = now if self._late_since is None else self._late_since
        return now - self._late_since < NO_ANSWER_SECONDS

    def _is_settled(self) -> bool:
        """Return whether the stream has been quiet for `SETTLED_SECONDS`. Then a batch without rows may show the changed figures."""
        now = self.planner.clock.monotonic()
        self._quiet_since = now if self._quiet_since is None else self._quiet_since
        return now - self._quiet_since >= SETTLED_SECONDS


def _without_rows(previous: BatchOffset) -> BatchOffset:
    return replace(previous, waits=previous.waits + 1)


class PlanningCalls:
    """Makes the calls for planning in the background. Owns the time when a failed call may be tried again.

    It reports to `outages` how calls end.
    """

    def __init__(self, outages: OutageWatch, clock: Clock, background: BackgroundCall) -> None:
        self._background = background
        self._clock = clock
        self._watch = outages
        self._retry_at = 0.0
        self._began: float | None = None

    def result(self, name: str, call: Callable[[], T], seconds: float = ANSWER_SECONDS) -> T | None:
        """Return the result of the call `name`, or None if there is no result yet.

        There is no result while the call is running, or while a service is unreachable. A call that takes longer than `seconds` continues
        in the background. Ask for its result again later, by the same name.

        Raises: OutageError if a service was unreachable for longer than `maxOutage`. Other errors are raised at once.
        """
        now = self._clock.monotonic()
        if now < self._retry_at:
            return None
        self._began = now if self._began is None else self._began
        try:
            result = self._background.result(name, partial(_with_one_voice, call), max(0.0, seconds))
        except TimeoutError:
            if self._clock.monotonic() - self._began >= NO_ANSWER_SECONDS:
                self._watch.on_failure(NO_ANSWER)
            return None
        except RecordPublisherError as error:
            self._began = None
            if not is_outage(error):
                raise
            self._retry_at = self._clock.monotonic() + self._watch.on_failure(error)
            return None
        self._began = None
        self._watch.on_success()
        return result


def _with_one_voice(call: Callable[[], T]) -> T:
    with retries_not_logged():
        return call()


class BackgroundCall:
    """Runs one call at a time in a thread. The call is never cancelled. A later request with the same name gets its result.

    A call with another name begins when the running call has ended, and the result of the running call is dropped. The thread is a daemon,
    so it does not delay the end of the process.
    """

    def __init__(self) -> None:
        self._running: tuple[str, Future[Any]] | None = None

    def result(self, name: str, call: Callable[[], T], seconds: float) -> T:
        """Return the result of the call `name`. The first request with this name starts the call.

        - `seconds`: how long to wait, for a running call of another name and for this call together.

        Raises: TimeoutError if the call has not ended by then; the error of the call.
        """
        until = time.monotonic() + seconds
        if self._running is not None and self._running[0] != name:
            self._running[1].exception(seconds)
            self._running = None
        if self._running is None:
            self._running = name, _started(call)
        future: Future[T] = self._running[1]
        future.exception(max(0.0, until - time.monotonic()))
        self._running = None
        return future.result()


def _started(call: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="recordpublisher-planning", daemon=True).start()
    return future
