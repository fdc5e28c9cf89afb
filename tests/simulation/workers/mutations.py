"""Each mutation takes one rule of watermarks out of the fetcher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from recordpublisher.fetcher import watermark_functions
from recordpublisher.fetcher.active_minimum import ActiveMinimum
from recordpublisher.fetcher.elastic.leased_ownership import GroupTracker
from recordpublisher.fetcher.shards.idleness import IdlenessTimer
from recordpublisher.fetcher.shards.shard_entry import ShardEntry
from recordpublisher.fetcher.watermarks import LocalWatermark, OwnWatermark

Patches = list[tuple[Any, str, Any]]


def sink_is_told_more_than_the_global_watermark() -> Patches:
    """W1: the sink's watermark is not bounded by the global one."""
    advance = LocalWatermark.advance
    return [(LocalWatermark, "advance", lambda self, value: advance(self, None if value is None else 2**62))]


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
    return [(GroupTracker, "current", lambda self: self._current.group_watermark)]


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
    emit_limit = watermark_functions.emit_limit
    return [(watermark_functions, "emit_limit", lambda value, lookahead: emit_limit(value, lookahead) + 5_000)]


def heads_of_queues_do_not_count() -> Patches:
    """W9: a shard counts with its last written record, so its next one cannot raise the global watermark."""
    return [(ShardEntry, "alignment_watermark", property(lambda self: self.state.watermark))]


def late_records_are_not_counted() -> Patches:
    """W13: nothing compares records with the global watermark."""
    advance = ShardEntry.advance
    return [(ShardEntry, "advance", lambda self, batch, value, now_ms: advance(self, batch, None, now_ms))]


MUTATIONS: dict[str, Callable[[], Patches]] = {
    each.__name__: each
    for each in (
        sink_is_told_more_than_the_global_watermark, sink_is_told_of_queued_records, shards_without_records_do_not_count,
        idle_by_time_alone, a_new_life_begins_anew, a_process_alone_follows_its_last_report, limit_is_passed,
        heads_of_queues_do_not_count, late_records_are_not_counted,
    )
}  # fmt: skip


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The fetcher without one rule."""
    with ExitStack() as stack:
        for owner, attribute, value in MUTATIONS[name]():
            stack.enter_context(patch.object(owner, attribute, value, create=True))
        yield
