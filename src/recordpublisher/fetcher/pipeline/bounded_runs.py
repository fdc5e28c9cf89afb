"""Defines the bounds of a run (tip, records, time), decides when they are reached (S8), and describes the result of the run."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

from recordpublisher.consumer.end_position import RunEnd
from recordpublisher.publishers.errors import ConfigurationError, ImpossibleStateError, StateError
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.safe_text import counted
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.user_code import LEFT_BEHIND

from ..shards.shard_entry import ShardEntry
from ..shards.shard_state import ShardState
from .retention_gaps import ShardObservation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a run. Every bound is optional; the first one that is reached ends the run.

    - `max_time`: how long the run may take (seconds).
    - `max_records`: the exact number of records to emit, over all shards.
    - `max_bytes`: payload bytes over all shards. The batch that reaches the bound is the last.
    - `until_event_time`: epoch ms. Records with a watermark above it are not emitted. A shard whose next record is above it has finished.
    - `stop_at_tip`: whether a shard is read only until a read is at its tip. Later records are left to the next run.
    - `shard_limits`: the exact number of records to emit of each shard, by `Shard.key`. After them the shard has finished. A shard that is
      not named has no limit.
    - `ends`: the positions at which the run ends, by `Shard.key`. Later records of such a shard are neither decoded nor emitted. The shard
      has finished at its position.
    """

    max_time: float | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    until_event_time: int | None = None
    stop_at_tip: bool = False
    shard_limits: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, RunEnd] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("max_time", self.max_time, (int, float), "a number of seconds, not negative")
        _check("max_records", self.max_records, (int,), "a number of records, not negative")
        _check("max_bytes", self.max_bytes, (int,), "a number of bytes, not negative")
        if not isinstance(self.stop_at_tip, bool):
            raise ConfigurationError("stop_at_tip", self.stop_at_tip, "True or False")
        for key, limit in self.shard_limits.items():
            _check(f"shard_limits[{key}]", limit, (int,), "a number of records, not negative")
        if self.until_event_time is not None and type(self.until_event_time) is not int:
            raise ConfigurationError("until_event_time", self.until_event_time, "epoch milliseconds, a whole number")


@dataclass(frozen=True, slots=True)
class BoundedResult:
    """The result of a run: the reason why it ended, and the outcome of each shard by `Shard.key`.

    - `records`: how many records the sink received. Those that it rejected count; those that could not be decoded do not, because the
      sink has not received them.
    """

    reason: EndReason
    shards: Mapping[str, ShardOutcome]
    records: int = 0

    def __str__(self) -> str:
        return f"{self.reason.name}, {counted(self.records, 'record')} to the sink"


class EndReason(Enum):
    """The reason why a run ended."""

    STOPPED = "stop() was called"
    MAX_TIME = "max_time was reached"
    MAX_RECORDS = "max_records was reached"
    MAX_BYTES = "max_bytes was reached"
    EVENT_TIME = "every shard reached until_event_time or its tip"
    TIP = "every shard reached its tip"
    SHARD_LIMITS = "every shard reached its limit of records, or the position at which the run ends in it"
    ALL_ENDED = "every shard was read to its end"
    STREAMS_DELETED = "every stream was deleted"


@dataclass(frozen=True, slots=True)
class ShardOutcome:
    """The result of a run for one shard.

    - `state`: the position up to which the shard was emitted, in this run and before.
    - `records`, `payload_bytes`: the number of records that this run has emitted, and their bytes.
    - `seen`: what the run's reads have shown of the shard, such as its tip and its children.
    - `first_past_end`: the sequence number of the first record after the position at which the run ends in the shard (`Bounds.ends`). None
      if the run has not reached that position.
    """

    shard: Shard
    state: ShardState
    records: int = 0
    payload_bytes: int = 0
    seen: ShardObservation = ShardObservation()  # noqa: RUF009 - is frozen
    first_past_end: str | None = None


class TerminationCondition:
    """Decides whether a run has reached its bounds. Counts what the run has emitted, and keeps which shards have reached their bounds.

    `has_leases`: whether the worker acquires shards by leases. A run then has no shards at first, and may get a shard's children late.
    """

    def __init__(self, bounds: Bounds, *, has_leases: bool = False) -> None:
        self._bounds = bounds
        self._has_leases = has_leases
        self._started: set[str] = set()
        self._done: set[str] = set()
        self._per_shard: dict[str, int] = {}
        self.until_event_time = bounds.until_event_time
        self.max_time = bounds.max_time
        self.stop_at_tip = bounds.stop_at_tip
        self.records = 0
        self.payload_bytes = 0
        self.ends = bounds.ends
        has_own = bool(bounds.shard_limits or bounds.ends)
        self.has_shard_bounds = bounds.stop_at_tip or bounds.until_event_time is not None or has_own
        self._is_over = False

    def max_emittable(self, entry: ShardEntry, count: int) -> int:
        """Return how many of a shard's next `count` records may be emitted within the bounds."""
        total = self._bounds.max_records
        if total is not None:
            count = min(count, total - self.records)
        if self._bounds.max_bytes is not None:
            count = min(count, self._fair_share(entry, self._bounds.max_bytes))
        limit = self._bounds.shard_limits.get(entry.key)
        return count if limit is None else min(count, limit - self._per_shard.get(entry.key, 0))

    def may_emit(self, entry: ShardEntry) -> bool:
        """Return whether the shard is below its own limit of records."""
        limit = self._bounds.shard_limits.get(entry.key)
        return limit is None or self._per_shard.get(entry.key, 0) < limit

    def needs_more_reads(self, entry: ShardEntry) -> bool:
        """Return whether the run may emit more records of a shard than were read so far. If not, reading stops.

        With `stop_at_tip` a shard is read until it is at its tip once. The shards are not at their tips at the same time.
        """
        return self.may_emit(entry) and not self._has_read_all(entry) and not self.is_past_event_time(entry)

    def count_emitted(self, entry: ShardEntry, batch: RecordBatch) -> None:
        """Count an emitted batch."""
        self.records += len(batch)
        self.payload_bytes += batch.raw_bytes
        self._per_shard[entry.key] = self._per_shard.get(entry.key, 0) + len(batch)

    def update(self, entry: ShardEntry) -> None:
        """Decide again whether a shard has reached its bounds. Call this after each change of the shard."""
        if entry.is_waiting:
            return
        self._started.add(entry.key)
        if self._is_done(entry):
            self._done.add(entry.key)
        else:
            self._done.discard(entry.key)

    def remove(self, key: str) -> None:
        """Forget a shard that was removed."""
        self._started.discard(key)
        self._done.discard(key)

    def holds_watermark(self, entry: ShardEntry) -> bool:
        """Return whether watermarks wait for the shard (hold), as far as the bounds of the run decide it.

        A bounded run does not wait for records that it will not read. A run without bounds waits for every shard. The caller also considers
        whether the shard is idle.
        """
        if self._is_over:
            # A shard without a record up to its tip, or up to the event-time bound, does not hold the watermark back; a shard that was not
            # read so far does.
            has_none = entry.reading.has_seen_tip or self.is_past_event_time(entry)
            return entry.state.watermark is not None or not has_none
        return not self.has_shard_bounds or entry.key not in self._done or self.is_past_event_time(entry)

    def end_reason(self) -> EndReason | None:
        """Return why the run is over, or None while it is not."""
        bounds = self._bounds
        if bounds.max_records is not None and self.records >= bounds.max_records:
            return EndReason.MAX_RECORDS
        if bounds.max_bytes is not None and self.payload_bytes >= bounds.max_bytes:
            return EndReason.MAX_BYTES
        if self.has_shard_bounds and self._started and len(self._done) == len(self._started):
            return self._shard_reason()
        return None

    def finish(self) -> bool:
        """Let all shards count for the last watermark of the run, because the run has reached its bounds. Return whether they do.

        Until now, shards that had reached their bounds did not count. The last watermark is the lowest one of the shards that have one. In
        a group nothing changes and the result is False, because the other workers still read.
        """
        self._is_over = self.ends_without_open_shards
        return self._is_over

    @property
    def ends_without_open_shards(self) -> bool:
        """Whether the run is over when this worker has no open shard. False in a group, because the worker may acquire further shards."""
        return self.has_shard_bounds and not self._has_leases

    def is_past_event_time(self, entry: ShardEntry) -> bool:
        """Return whether a shard's next record is above the event-time bound."""
        until, watermark = self._bounds.until_event_time, entry.next_watermark
        return until is not None and watermark is not None and watermark > until

    def _fair_share(self, entry: ShardEntry, max_bytes: int) -> int:
        """Return how many records a shard may emit at once, so that every shard emits some before `max_bytes` is reached.

        One read of a busy shard may be larger than `max_bytes`. Without this limit, each run would emit that shard only.
        """
        head = entry.reading.queue[0]
        return max(1, max_bytes * len(head) // (max(1, len(self._started)) * max(1, head.raw_bytes)))

    def _is_done(self, entry: ShardEntry) -> bool:
        if entry.has_ended:
            return not (self._has_leases and entry.reading.children)
        if not self.may_emit(entry) or self.is_past_event_time(entry):
            return True
        return self._has_read_all(entry) and not entry.reading.queue and not entry.emission.is_writing

    def _has_read_all(self, entry: ShardEntry) -> bool:
        """Return whether a bound of this run has ended the reading of a shard. There are two such bounds:

        - `Bounds.ends`: the shard was read to the position at which the run ends in it.
        - `Bounds.stop_at_tip`: one read was at the tip. A closed shard is read to its end instead, because its children wait for that.
        """
        has_reached_tip = self._bounds.stop_at_tip and entry.reading.has_seen_tip and not entry.shard.closed
        return has_reached_tip or entry.reading.first_past_run_end is not None

    def _shard_reason(self) -> EndReason:
        if self._bounds.until_event_time is not None:
            return EndReason.EVENT_TIME
        return EndReason.TIP if self._bounds.stop_at_tip else EndReason.SHARD_LIMITS


class RunCompletion:
    """Keeps why a run ends: a reason or an error, of which the first one counts. An error of a background task ends the run."""

    def __init__(self) -> None:
        self._reason: asyncio.Future[EndReason] | None = None
        self._is_stopped = False
        self.ending = asyncio.Event()
        """An event that is set when a run begins to end, and cleared when the next run starts."""
        self._finishing: asyncio.Task[Any] | None = None
        self._cancels_before = 0

    @property
    def is_running(self) -> bool:
        """Whether a run has started and not ended."""
        return self._reason is not None and not self._reason.done()

    @property
    def has_ended(self) -> bool:
        """Whether the last run has ended."""
        return self._reason is not None and self._reason.done()

    @property
    def error(self) -> BaseException | None:
        """The error that ended the run. None while it runs, and after any other end."""
        if self._reason is None or not self._reason.done() or self._reason.cancelled():
            return None
        return self._reason.exception()

    def start(self) -> None:
        """Start a run. If `stop` was called before, the run ends at once. Raises: StateError if no run may start (`check_finished`)."""
        self.check_finished()
        self._cancels_before = _cancels()
        self._reason = asyncio.get_running_loop().create_future()
        self.ending.clear()
        if self._is_stopped:
            self.complete(EndReason.STOPPED)

    async def wait(self) -> EndReason:
        """Wait for the end of the run. Raises: the error that ended it."""
        assert self._reason is not None
        return await self._reason

    @property
    def is_cut_short(self) -> bool:
        """Whether the run ends by `stop`, by `max_time` or by an error. Its end must then not take long.

        This includes a `stop` during the last checkpoint of a run that a bound has ended.
        """
        if self._is_stopped or self._reason is None or not self._reason.done() or self._reason.cancelled():
            return self._is_stopped
        return self._reason.exception() is not None or self._reason.result() in (EndReason.STOPPED, EndReason.MAX_TIME)

    def complete(self, reason: EndReason) -> None:
        """End the run."""
        if self._reason is not None and not self._reason.done():
            self._reason.set_result(reason)
            self.ending.set()

    def stop(self) -> None:
        """End the run, and make each later run end as soon as it starts."""
        self._is_stopped = True
        self.complete(EndReason.STOPPED)

    async def complete_after(self, seconds: float | None) -> None:
        """End the run after `seconds`, or never if `seconds` is None."""
        if seconds is not None:
            await asyncio.sleep(seconds)
            self.complete(EndReason.MAX_TIME)

    def fail(self, error: BaseException) -> bool:
        """End the run with an error. If the run has ended before, change nothing. Return whether any error has ended the run."""
        if self._reason is not None and not self._reason.done():
            self._reason.set_exception(error)
            self.ending.set()
        return self.error is not None

    def check_finished(self) -> None:
        """Check that a run may start. Raises: StateError if a write of the last run, which was cancelled twice, is still in progress."""
        if self._finishing is not None and not self._finishing.done():
            raise StateError(
                "the last run was cancelled twice, and its write has not ended: wait until it has ended, or create a new job"
            )

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`, which ends a run, and return its result.

        If the run is cancelled in the meantime, `work` still ends first, and then CancelledError is raised. A second cancellation is raised
        at once, because a write may hang. No further run starts until `work` has ended (`check_finished`).
        """
        self._finishing = task = asyncio.create_task(work)
        cancellation = None
        if self._was_cancelled_twice:  # before this call
            raise asyncio.CancelledError
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                if self._was_cancelled_twice:
                    raise
                cancellation = error
        if cancellation is None:
            return task.result()
        if not task.cancelled():
            task.exception()  # Retrieved, because otherwise asyncio would log it.
        raise cancellation

    @property
    def _was_cancelled_twice(self) -> bool:
        return _cancels() - self._cancels_before > 1

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` in a background task of the run."""
        task: asyncio.Task[None] = asyncio.create_task(work)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if task in LEFT_BEHIND:  # An earlier run has left this task behind, because it did not end in time.
            return
        if task.cancelled():
            # At the end of a run its tasks are cancelled, and this call changes nothing. Before the end, a task is cancelled only if a sink
            # cancels itself by mistake. Then the run must fail instead of waiting for ever.
            self.fail(ImpossibleStateError(f"a background task of the run was cancelled: {task.get_coro()}"))
        elif (error := task.exception()) is not None:
            self.fail(error)


def shard_outcome(
    entry: ShardEntry, before: tuple[int, int, int], past_event_time: Mapping[str, int | None]
) -> ShardOutcome:
    """Return the outcome of one shard.

    - `before`: the result of `emitted_counts` before the run.
    - `past_event_time`: the shards whose next record is above the bound `until_event_time`, each with the watermark of that record.
    """
    is_past, behind_ms = entry.key in past_event_time, entry.metrics.millis_behind_latest
    failure = entry.metrics.last_failure
    return ShardOutcome(
        shard=entry.shard,
        state=replace(entry.state, tip_ms=entry.snapshot_state.tip_ms),
        records=entry.emission.records - before[0],
        payload_bytes=entry.emission.payload_bytes - before[1],
        seen=ShardObservation(
            at_tip=entry.reading.at_tip and not is_past,
            tip_seen_ms=entry.reading.tip_seen_ms,
            past_event_time=is_past,
            next_watermark=past_event_time.get(entry.key),
            silent_ms=entry.reading.idleness.observed_ms,
            behind_ms=None if behind_ms < 0 else behind_ms,
            children=entry.reading.children,
            failure=None if failure is None else str(failure),
            taken_over=entry.metrics.subscriptions_taken_over,
            refused=entry.metrics.subscriptions_refused,
            skipped=entry.metrics.skipped_records - before[2],
        ),
        first_past_end=entry.reading.first_past_run_end,
    )


def emitted_counts(entry: ShardEntry) -> tuple[int, int, int]:
    """Return the number of records of a shard that were emitted so far, their bytes, and the number of skipped records."""
    return entry.emission.records, entry.emission.payload_bytes, entry.metrics.skipped_records


def _check(name: str, given: Any, types: tuple[type, ...], valid: str) -> None:
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, types) or not 0 <= given < math.inf:  # type: ignore[operator]
        raise ConfigurationError(name, given, valid)


def _cancels() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
