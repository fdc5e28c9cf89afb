"""The next offset from the last one and its claims: one plain function, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from recordpublisher.publishers.shards import Shard

from .batch_alignment import AlignmentSettings, advanced, silence_ms_after
from .batch_offset import BatchOffset, ShardOffset
from .lineage import with_new_shards, with_started_children
from .read_claim import ShardReadRange
from .shard_grouping import is_held


@dataclass(frozen=True, slots=True)
class AvailableNow:
    """A run that stops at the tip as of its start: `arrival_ms` the server's clock then, `after_batch` the last batch planned before."""

    arrival_ms: int
    after_batch: int

    def is_done(self, entry: ShardOffset, claim: ShardReadRange | None, batch: int) -> bool:
        """Whether the shard gave everything that was there at the start of the run; claims of earlier runs say nothing about that."""
        if batch <= self.after_batch:
            return False
        if claim is None:
            return entry.done
        return claim.at_tip or (claim.end.arrival_ms or 0) >= self.arrival_ms


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """What the planner knows besides the claims: time, a random id, limits, shards and streams that are new, shards (by `Shard.key`) that
    are gone and accepted as lost."""

    plan: str
    now_ms: int
    alignment: AlignmentSettings
    limit: int | None = None
    found: tuple[Shard, ...] = ()
    new_streams: Mapping[str, ShardOffset] = field(default_factory=dict)
    available_now: AvailableNow | None = None
    gone: frozenset[str] = frozenset()


def advance(offset: BatchOffset, claims: Mapping[str, ShardReadRange], planned: PlanInputs) -> BatchOffset:
    """The next batch's offset, but for the number of tasks. A shard without a claim stays where it is: it is read again, not lost."""
    moved = {key: _moved(entry, claims.get(key), offset, planned) for key, entry in offset.shards.items()}
    children = [child for claim in claims.values() for child in claim.children]
    shards = with_started_children(with_new_shards({**moved, **planned.new_streams}, [*children, *planned.found]))
    value = advanced(offset.global_watermark, shards, planned.alignment, planned.now_ms)
    bound = planned.alignment.emit_limit(value)
    elapsed = planned.now_ms - offset.planned_ms
    return replace(
        offset,
        plan=planned.plan,
        batch=offset.batch + 1,
        planned_ms=planned.now_ms,
        limit=planned.limit,
        global_watermark=value,
        emit_limit=bound,
        records=offset.records + sum(claim.records for claim in claims.values()),
        shards={key: _held(entry, bound, elapsed) for key, entry in shards.items()},
    )


def _moved(entry: ShardOffset, claim: ShardReadRange | None, offset: BatchOffset, planned: PlanInputs) -> ShardOffset:
    if entry.key in planned.gone:
        return replace(entry, state=replace(entry.state, ended=True), ended_ms=planned.now_ms)
    now = planned.available_now
    done = now is not None and now.is_done(entry, claim, offset.batch)
    if claim is None:
        return replace(entry, last_records=0, done=done)
    silent = silence_ms_after(entry, claim)
    moved = replace(
        entry,
        state=claim.end,
        records=entry.records + claim.records,
        last_records=claim.records,
        at_tip=claim.at_tip,
        tip_ms=_tip(entry, claim),
        silent_ms=silent,
        next_watermark=claim.next_watermark if claim.past_event_time else None,
        behind_ms=claim.behind_ms,
        ended_ms=planned.now_ms if claim.end.ended else None,
        done=done,
        empty_windows=0 if _brought_it_on(entry, claim) else entry.empty_windows + 1,
    )
    return replace(moved, idle=planned.alignment.is_idle(moved))


def _brought_it_on(entry: ShardOffset, claim: ShardReadRange) -> bool:
    """Whether the window showed something: records, the tip, a record above the bound, the end, or a position further on."""
    before, after = entry.state, claim.end
    moved = (before.position, before.continuation) != (after.position, after.continuation)
    return moved or claim.at_tip or claim.past_event_time or after.ended or claim.records > 0


def _tip(entry: ShardOffset, claim: ShardReadRange) -> int | None:
    """When a read last stood at the tip, None once one stood behind it; a window without an answer changes nothing."""
    if not claim.was_answered:
        return entry.tip_ms
    return claim.tip_seen_ms[1] if claim.at_tip and claim.tip_seen_ms else None


def _held(entry: ShardOffset, bound: int | None, elapsed_ms: int) -> ShardOffset:
    """Count the time that a record waited above the bound."""
    if entry.next_watermark is None or entry.state.ended:
        return entry
    batches = entry.held_batches + (1 if is_held(entry, bound) else 0)
    return replace(entry, held_ms=entry.held_ms + max(0, elapsed_ms), held_batches=batches)
