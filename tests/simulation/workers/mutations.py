"""Each mutation takes one rule of watermarks out of the fetcher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from recordpublisher.consumer import shard_consumer
from recordpublisher.fetcher import global_watermark_rules, watermarks
from recordpublisher.fetcher.elastic.group_membership import GroupMembership
from recordpublisher.fetcher.elastic.leased_ownership import GroupWatermarkTracker
from recordpublisher.fetcher.pipeline import memory_budget
from recordpublisher.fetcher.pipeline.emitter import Emitter
from recordpublisher.fetcher.shard_lifecycle import ShardLifecycle
from recordpublisher.fetcher.shards.idleness import IdlenessTimer
from recordpublisher.fetcher.shards.read_state import ShardReadState
from recordpublisher.fetcher.shards.shard_entry import ShardEntry
from recordpublisher.fetcher.shards.shard_table import ShardTable
from recordpublisher.fetcher.watermarks import ActiveMinimum, LocalWatermark, OwnWatermark
from recordpublisher.publishers.records import RecordBatch

Patches = list[tuple[Any, str, Any]]


def sink_is_told_more_than_the_global_watermark() -> Patches:
    """W1: the sink's watermark is not bounded by the global one."""
    advance = LocalWatermark.advance

    def unbounded(self: LocalWatermark, value: int | None, *, has_ended: bool = False) -> int | None:
        return advance(self, None if value is None else 2**62, has_ended=has_ended)

    return [(LocalWatermark, "advance", unbounded)]


def sink_is_told_of_queued_records() -> Patches:
    """W1: the sink's watermark counts records that are read and not written."""

    def update(self: LocalWatermark, entry: ShardEntry, holds_watermark: bool = True) -> None:
        self._emitted.set(entry.key, holds_watermark and entry.is_active, entry.alignment_watermark)

    return [(LocalWatermark, "update", update)]


def shards_without_records_do_not_count() -> Patches:
    """W2: a started shard is waited for only after its first record."""
    put = ActiveMinimum.set
    return [(ActiveMinimum, "set", lambda self, key, active, mark: put(self, key, active and mark is not None, mark))]


def idle_by_time_alone() -> Patches:
    """W3: failed and withheld reads, and suspensions, count as silence."""

    def on_empty_read(self: IdlenessTimer, now: float, lost: float = 0.0) -> None:
        if self._last_read is not None:
            self._observed += now - self._last_read
        self._last_read = now

    def nothing(self: IdlenessTimer) -> None:
        pass

    return [
        (IdlenessTimer, "on_empty_read", on_empty_read),
        (IdlenessTimer, "on_interruption", nothing),
        (IdlenessTimer, "on_suspension", nothing),
    ]


def a_new_life_begins_anew() -> Patches:
    """W6: a process whose worker was replaced forgets the global watermark that it knew."""
    return [(GroupWatermarkTracker, "current", lambda self: self._current.group_watermark)]


def a_process_alone_follows_its_last_report() -> Patches:
    """W6: the global watermark of a process that runs alone may fall."""
    return [
        (OwnWatermark, "current", lambda self: self.last),
        (OwnWatermark, "report", _report),
        (OwnWatermark, "last", None),
    ]


def _report(self: Any, status: Any, watermark: int | None) -> int | None:
    self.last = watermark
    return watermark


def limit_is_passed() -> Patches:
    """W8: records above the limit are written."""
    emit_limit = global_watermark_rules.emit_limit
    return [(global_watermark_rules, "emit_limit", lambda value, lookahead: emit_limit(value, lookahead) + 5_000)]


def heads_of_queues_do_not_count() -> Patches:
    """W9: a shard counts with its last written record, so its next one cannot raise the global watermark."""
    return [(ShardEntry, "alignment_watermark", property(lambda self: self.state.watermark))]


def idle_until_a_record_is_written() -> Patches:
    """W4: watermarks do not wait for the records that end the idleness of a shard before these are written."""
    record, is_active = ShardReadState.on_read, ShardEntry.is_active.fget

    def recording(self: ShardReadState, batch: RecordBatch, *rest: Any) -> None:
        self.was_idle = self.is_idle or (self.was_idle and self.queue.records > 0)  # type: ignore[attr-defined]
        record(self, batch, *rest)

    def is_counted(self: ShardEntry) -> bool:
        return is_active(self) and not (self.has_unwritten and self.reading.was_idle)  # type: ignore[attr-defined,misc]

    return [
        (ShardReadState, "was_idle", False),
        (ShardReadState, "on_read", recording),
        (ShardEntry, "is_active", property(is_counted)),
    ]


def ended_parents_hold_nothing() -> Patches:
    """W5: between the end of a parent and the start of its child nothing holds the global watermark."""
    return [(watermarks, "holds_after_end", lambda *conditions: False)]


def children_begin_without_a_watermark() -> Patches:
    """W5: a child does not begin at the watermark of its parents."""
    return [(ShardTable, "inherited_watermark", lambda self, shard: None)]


def held_workers_wait_for_a_record() -> Patches:
    """W7: a process whose shards are held or idle asks for the global watermark only when it reads something."""
    return [
        (Emitter, "on_heartbeat", lambda self: None),
        (GroupMembership, "_on_advance", property(lambda self: lambda: None, lambda self, callback: None)),
    ]


def a_suspension_is_not_noticed() -> Patches:
    """W7: nothing is asked or judged again after a suspension."""
    return [(ShardLifecycle, "on_resume", lambda self, gap_seconds: None)]


def the_value_stands_only_while_the_store_answers() -> Patches:
    """W10: a worker whose store is gone knows no global watermark."""

    current = GroupWatermarkTracker.current

    def confirmed(self: GroupWatermarkTracker) -> int | None:
        permission = self._current.permission
        return current(self) if permission is not None and permission.is_given else None

    return [(GroupWatermarkTracker, "current", confirmed)]


def held_shards_read_on() -> Patches:
    """W11: a shard that alignment holds back reads as long as there is memory."""
    why_blocked = memory_budget.why_blocked

    def by_memory(entry: ShardEntry, limits: Any) -> Any:
        why = why_blocked(entry, limits)
        return None if why is memory_budget.ReadBlock.ALIGNMENT else why

    return [(memory_budget, "why_blocked", by_memory)]


def times_of_a_wrong_clock_count() -> Patches:
    """W12: an event time may be any time ahead of its arrival."""
    return [(shard_consumer, "cap_future_event_times", lambda times, arrivals, limit_ms: (times, 0))]


def times_outside_the_calendar_count() -> Patches:
    """W12: records with event times outside the years 1 to 9999 are used."""
    return [(shard_consumer, "check_times", lambda times: None)]


def stragglers_hold_all() -> Patches:
    """W12: watermarks wait for a shard that is further behind than `flink.watermark.alignment.max.lag`."""
    return [(watermarks, "is_straggler", lambda watermark, highest, max_lag_ms: False)]


def late_records_are_not_counted() -> Patches:
    """W13: nothing compares records with the global watermark."""
    advance = ShardEntry.advance
    return [(ShardEntry, "advance", lambda self, batch, value, now_ms: advance(self, batch, None, now_ms))]


def a_listing_closes_no_known_shard() -> Patches:
    """S8: a shard counts as closed only if its first listing has shown that."""
    return [(ShardTable, "_update_closed", lambda self, listed: None)]


MUTATIONS: dict[str, Callable[[], Patches]] = {
    each.__name__: each
    for each in (
        sink_is_told_more_than_the_global_watermark, sink_is_told_of_queued_records, shards_without_records_do_not_count,
        idle_by_time_alone, idle_until_a_record_is_written, ended_parents_hold_nothing, children_begin_without_a_watermark,
        a_new_life_begins_anew, a_process_alone_follows_its_last_report, held_workers_wait_for_a_record, a_suspension_is_not_noticed,
        limit_is_passed, heads_of_queues_do_not_count, the_value_stands_only_while_the_store_answers, held_shards_read_on,
        times_of_a_wrong_clock_count, times_outside_the_calendar_count, stragglers_hold_all, late_records_are_not_counted,
        a_listing_closes_no_known_shard,
    )
}  # fmt: skip


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The fetcher without one rule."""
    with ExitStack() as stack:
        for owner, attribute, value in MUTATIONS[name]():
            stack.enter_context(patch.object(owner, attribute, value, create=True))
        yield
