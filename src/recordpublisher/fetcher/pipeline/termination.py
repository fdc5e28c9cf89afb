"""TerminationCondition: whether a bounded run has reached its end, and why (S8)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from recordpublisher.publishers.errors import ImpossibleStateError
from recordpublisher.publishers.records import RecordBatch

from ..shards.shard_table import ShardEntry, ShardStage
from .bounds import Bounds, EndReason


class TerminationCondition:
    """Watches the shards of one run against its bounds. Owns how much was emitted and which shards are done."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._started: set[str] = set()
        self._done: set[str] = set()
        self._per_shard: dict[str, int] = {}
        self.records = 0
        self.payload_bytes = 0
        self.has_shard_bounds = bounds.stop_at_tip or bounds.until_event_time is not None or bool(bounds.shard_limits)

    def allowed(self, entry: ShardEntry, count: int) -> int:
        """How many of the next `count` records of a shard may still go."""
        total = self._bounds.max_records
        if total is not None:
            count = min(count, total - self.records)
        if self._bounds.max_bytes is not None:
            count = min(count, self._fair_share(entry, self._bounds.max_bytes))
        limit = self._bounds.shard_limits.get(entry.key)
        return count if limit is None else min(count, limit - self._per_shard.get(entry.key, 0))

    def takes_part(self, entry: ShardEntry) -> bool:
        """False once a shard has given its number of records."""
        limit = self._bounds.shard_limits.get(entry.key)
        return limit is None or self._per_shard.get(entry.key, 0) < limit

    def reads_on(self, entry: ShardEntry) -> bool:
        """False once all that the run will emit of a shard is there. A busy shard has moved on by the time that the last of a thousand
        reaches its tip: read on, they would never all stand at their tips together."""
        return self.takes_part(entry) and not self._has_reached_tip(entry) and not self.is_past_event_time(entry)

    def emitted(self, entry: ShardEntry, batch: RecordBatch) -> None:
        """Count an emitted batch."""
        self.records += len(batch)
        self.payload_bytes += batch.raw_bytes
        self._per_shard[entry.key] = self._per_shard.get(entry.key, 0) + len(batch)

    def changed(self, entry: ShardEntry) -> None:
        """A shard may have reached, or left, its end."""
        if entry.stage is ShardStage.WAITING:
            return
        self._started.add(entry.key)
        if self._is_done(entry):
            self._done.add(entry.key)
        else:
            self._done.discard(entry.key)

    def forget(self, key: str) -> None:
        """A shard is no more."""
        self._started.discard(key)
        self._done.discard(key)

    def holds_others(self, entry: ShardEntry) -> bool:
        """False for a shard that is done: a bounded run does not wait for what it will not read (W2 is for runs that go on)."""
        return not self.has_shard_bounds or entry.key not in self._done or self.is_past_event_time(entry)

    def reason(self) -> EndReason | None:
        """Why the run is over, None while it is not."""
        bounds = self._bounds
        if bounds.max_records is not None and self.records >= bounds.max_records:
            return EndReason.MAX_RECORDS
        if bounds.max_bytes is not None and self.payload_bytes >= bounds.max_bytes:
            return EndReason.MAX_BYTES
        if self.has_shard_bounds and self._started and len(self._done) == len(self._started):
            return self._shard_reason()
        return None

    def is_past_event_time(self, entry: ShardEntry) -> bool:
        """Whether a shard's next record lies above the bound."""
        until, head = self._bounds.until_event_time, entry.next_watermark
        return until is not None and head is not None and head > until

    def _fair_share(self, entry: ShardEntry, max_bytes: int) -> int:
        """How many records of a shard go in one turn: so many that all shards could have a turn. One answer of a busy shard may hold more
        than the run may bring, and would be first in every run."""
        head = entry.queue[0]
        return max(1, max_bytes * len(head) // (max(1, len(self._started)) * max(1, head.raw_bytes)))

    def _is_done(self, entry: ShardEntry) -> bool:
        if entry.stage is ShardStage.ENDED or not self.takes_part(entry) or self.is_past_event_time(entry):
            return True
        return self._has_reached_tip(entry) and not entry.queue and not entry.is_writing

    def _has_reached_tip(self, entry: ShardEntry) -> bool:
        """A shard that was closed when listed has no tip but its end: its children wait for that (S2)."""
        return self._bounds.stop_at_tip and entry.seen_tip and not entry.shard.closed

    def _shard_reason(self) -> EndReason:
        if self._bounds.until_event_time is not None:
            return EndReason.EVENT_TIME
        return EndReason.TIP if self._bounds.stop_at_tip else EndReason.SHARD_LIMITS


class RunCompletion:
    """Owns the end of a run, and starts what runs in the background of it: an error there ends the run."""

    def __init__(self) -> None:
        self._reason: asyncio.Future[EndReason] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a run has begun and nothing has ended it."""
        return self._reason is not None and not self._reason.done()

    def begin(self) -> None:
        """A run begins."""
        self._reason = asyncio.get_running_loop().create_future()

    async def reached(self) -> EndReason:
        """Wait for the end. Raises: the error that ended the run."""
        assert self._reason is not None
        return await self._reason

    def finish(self, reason: EndReason) -> None:
        """End the run."""
        if self._reason is not None and not self._reason.done():
            self._reason.set_result(reason)

    async def finish_in(self, seconds: float | None) -> None:
        """End the run when the time is up; None: never."""
        if seconds is not None:
            await asyncio.sleep(seconds)
            self.finish(EndReason.MAX_TIME)

    def fail(self, error: BaseException) -> None:
        """End the run with an error, which is raised from it."""
        if self._reason is not None and not self._reason.done():
            self._reason.set_exception(error)

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` in a task."""
        task: asyncio.Task[None] = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if (
            task.cancelled()
        ):  # by us once the run is over; before, a sink let a cancellation of its own escape: do not wait for ever
            self.fail(ImpossibleStateError(f"a part of the run was cancelled from within: {task.get_coro()}"))
        elif (error := task.exception()) is not None:
            self.fail(error)
