"""next_offset: computes the offset of the next batch from the last offset and the claims of its batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from recordpublisher.publishers.shards import Shard

from .alignment import AlignmentSettings, next_global_watermark
from .claim import ShardRead
from .offset import BatchOffset, Held, ShardOffset
from .reshards import with_new_shards, with_started_children
from .shard_grouping import is_held


@dataclass(frozen=True, slots=True)
class AvailableNow:
    """A run that stops at the tips as of its start.

    `arrival_ms` is the service's time at the start; `after_batch` is the last batch that was planned before.
    """

    arrival_ms: int
    after_batch: int

    def is_done(self, entry: ShardOffset, read: ShardRead | None, batch: int) -> bool:
        """Whether every record that the shard had at the start of the run is read. Claims of earlier runs do not show that."""
        if batch <= self.after_batch:
            return False
        if read is None:
            return entry.done
        return read.seen.at_tip or (read.end.arrival_ms or 0) >= self.arrival_ms


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """What a plan needs besides the last offset and its claims.

    - `plan`: a new random id; `now_ms`: the driver's time; `limit`: the most records of the batch.
    - `found`: shards that are new in streams of the job; `new_streams`: the shards of streams that were added to the job.
    - `available_now`: set in a run that stops at the tips.
    - `lost`: shards, by `Shard.key`, that are past retention, if the job accepts that.
    """

    plan: str
    now_ms: int
    alignment: AlignmentSettings
    limit: int | None = None
    found: tuple[Shard, ...] = ()
    new_streams: Mapping[str, ShardOffset] = field(default_factory=dict)
    available_now: AvailableNow | None = None
    lost: frozenset[str] = frozenset()


def next_offset(offset: BatchOffset, reads: Mapping[str, ShardRead], inputs: PlanInputs) -> BatchOffset:
    """The next batch's offset; the caller decides the number of tasks afterwards.

    `reads` has the claimed range of each shard. A shard without one starts at the same position again, so nothing is lost.
    """
    # 1. Every shard moves to where its claimed read ended.
    shards = {key: _after_read(entry, reads.get(key), offset, inputs) for key, entry in offset.shards.items()}

    # 2. New shards are added; children replace parents that have ended.
    children = [child for read in reads.values() for child in read.seen.children]
    shards = with_new_shards({**shards, **inputs.new_streams}, inputs.found, children)
    shards = with_started_children(shards)

    # 3. The global watermark rises to that of the lowest active shard, and the emit limit with it.
    global_watermark = next_global_watermark(offset.global_watermark, shards, inputs.alignment, inputs.now_ms)
    emit_limit = inputs.alignment.emit_limit(global_watermark)

    # 4. Shards that wait above that limit count the time.
    elapsed_ms = inputs.now_ms - offset.planned_ms
    shards = {key: _with_held_time(entry, emit_limit, elapsed_ms) for key, entry in shards.items()}

    return replace(
        offset,
        plan=inputs.plan,
        batch=offset.batch + 1,
        planned_ms=inputs.now_ms,
        limit=inputs.limit,
        global_watermark=global_watermark,
        emit_limit=emit_limit,
        records=offset.records + sum(read.records for read in reads.values()),
        bytes=offset.bytes + sum(read.bytes for read in reads.values()),
        shards=shards,
        waits=0,
    )


def _after_read(entry: ShardOffset, read: ShardRead | None, offset: BatchOffset, inputs: PlanInputs) -> ShardOffset:
    """The shard after the batch of `offset`; `read` is None when no task has claimed it."""
    if entry.key in inputs.lost:
        return replace(entry, state=replace(entry.state, ended=True), ended_ms=inputs.now_ms)
    run = inputs.available_now
    done = run is not None and run.is_done(entry, read, offset.batch)
    if read is None:
        return replace(entry, last_records=0, done=done)
    after = replace(
        entry,
        state=read.end,
        seen=read.seen,
        silence=entry.silence.after(read.seen, read.records),
        records=entry.records + read.records,
        last_records=read.records,
        ended_ms=inputs.now_ms if read.end.ended else None,
        done=done,
        empty_windows=0 if read.made_progress else entry.empty_windows + 1,
    )
    return replace(after, idle=inputs.alignment.is_idle(after))


def _with_held_time(entry: ShardOffset, emit_limit: int | None, elapsed_ms: int) -> ShardOffset:
    """Count the time for which a record has waited above the emit limit."""
    if entry.seen.next_watermark is None or entry.state.ended:
        return entry
    batches = entry.held.batches + (1 if is_held(entry, emit_limit) else 0)
    return replace(entry, held=Held(entry.held.ms + max(0, elapsed_ms), batches))
