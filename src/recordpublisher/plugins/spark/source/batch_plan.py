"""Computes the plan of the next batch, from the last offset and the claims of its batch (what its tasks have read)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import msgspec

from recordpublisher.fetcher.shards.read_state import latest
from recordpublisher.publishers.shards import Shard

from ..options.spark_options import SparkOptions
from .claims import BatchClaims, ShardRead
from .offset import BatchOffset, HeldSoFar, ShardOffset
from .offset_alignment import AlignmentSettings, is_held, next_global_watermark
from .offset_lineage import has_children, is_startable, new_shards, unread_shard, with_new_shards, with_started_children


def plan_batch(previous: BatchOffset, claims: BatchClaims, inputs: PlanInputs) -> BatchPlan:
    """Return the plan of the batch after `previous`. Each shard starts where its last read ended, according to `claims`.

    A shard without a claim starts at the same position again, so no record is lost.
    """
    reads = claims.shards
    # 1. Every shard moves to where its claimed read ended.
    shards = {key: _after_read(entry, reads.get(key), previous, inputs) for key, entry in previous.shards.items()}

    # 2. New shards are added; children replace parents that have ended; streams that are no longer read leave.
    children = [child for read in reads.values() for child in read.seen.children]
    known_streams = {entry.shard.stream for entry in previous.shards.values()}
    in_new_streams = [shard for shard in inputs.listed if shard.stream not in known_streams]
    shards |= {
        shard.key: unread_shard(shard, previous.initial_start)
        for shard in in_new_streams
        if shard.stream in inputs.streams
    }
    found = [
        shard for shard in new_shards(inputs.listed, previous.shards, inputs.finished) if shard.stream in known_streams
    ]
    shards = with_started_children(with_new_shards(shards, found, children))

    # 3. The global watermark rises to the lowest watermark of an active shard, and the emit limit with it.
    global_watermark = next_global_watermark(previous.global_watermark, shards, inputs.alignment, inputs.now_ms)
    emit_limit = inputs.alignment.emit_limit(global_watermark)

    # 4. Shards that wait above that limit count the time. The other shards that may be read are divided among the tasks.
    elapsed_ms = inputs.now_ms - previous.planned_ms
    shards = {
        key: _with_held_time(entry, emit_limit, elapsed_ms)
        for key, entry in shards.items()
        if entry.shard.stream in inputs.streams
    }
    readable = [entry for _, entry in sorted(shards.items()) if _is_readable(entry, shards, emit_limit)]
    task_of = _tasks(readable, previous.batch + 1, inputs)

    offset = replace(
        previous,
        plan=inputs.plan,
        after=previous.plan,
        batch=previous.batch + 1,
        planned_ms=inputs.now_ms,
        limit=inputs.limit,
        global_watermark=global_watermark,
        emit_limit=emit_limit,
        records=previous.records + sum(read.records for read in reads.values()),
        bytes=previous.bytes + sum(read.bytes for read in reads.values()),
        skipped=previous.skipped + sum(read.seen.skipped for read in reads.values()),
        shards={key: replace(entry, task=task_of.get(key)) for key, entry in shards.items()},
        waits=0,
    )
    return BatchPlan(
        previous=previous,
        claims=claims,
        offset=offset,
        readable=tuple(readable),
        has_unlisted_ends=any(entry.state.ended and not has_children(entry, shards) for entry in shards.values()),
        read_everything=_read_everything(previous, offset, claims, readable),
        due_ms=_due_ms(offset, readable, inputs.alignment),
        is_available_now=inputs.available_now is not None,
        is_run_over=_is_run_over(offset, claims, inputs.available_now),
    )


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The inputs of a plan, in addition to the last offset and its claims (what its tasks have read).

    - `plan`: a new random id for the plan.
    - `now_ms`: the driver's time (epoch ms).
    - `tasks_for`: a function that takes a number of shards, and returns the number of tasks that read them.
    - `streams`: the names of the job's streams. Other streams in the offset are dropped.
    - `limit`: the highest number of records in the batch.
    - `listed`: the shards of the newest complete listing.
    - `finished`: keys of shards that left the offset since the process began, because they were read to their ends.
    - `available_now`: where an AvailableNow run ends; None in another run.
    - `lost`: keys of shards that have expired unread, if the job accepts that.
    """

    plan: str
    now_ms: int
    alignment: AlignmentSettings
    tasks_for: Callable[[int], int]
    streams: Collection[str]
    limit: int | None = None
    listed: Sequence[Shard] = ()
    finished: Collection[str] = ()
    available_now: AvailableNow | None = None
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The plan of a batch, and facts from which `next_step` decides whether the batch should run.

    - `previous`, `claims`: the plan and the claims of the last batch.
    - `offset`: the new plan. The token of the claim store is added to it later.
    - `readable`: all shards that may be read. If the record limit is below their number, the batch reads only some of them.
    - `has_unlisted_ends`: whether a shard has ended and its children are not known.
    - `read_everything`: whether the last batch left nothing that the new one could emit, as far as its reads show.
    - `due_ms`: when the batch must run even if no new record arrives (epoch ms).
    - `is_available_now`: whether this is an AvailableNow run.
    - `is_run_over`: whether an AvailableNow run has read everything, or its sink did not read the last batch.
    """

    previous: BatchOffset
    claims: BatchClaims
    offset: BatchOffset
    readable: tuple[ShardOffset, ...]
    has_unlisted_ends: bool
    read_everything: bool
    due_ms: int
    is_available_now: bool
    is_run_over: bool


@dataclass(frozen=True, slots=True)
class AvailableNow:
    """Where a run with Trigger.AvailableNow stops: at the tip (newest record) that each shard had when the run started.

    - `arrival_ms`: the service's time at the start (epoch ms).
    - `after_batch`: the number of the last batch that was planned before the start.
    """

    arrival_ms: int
    after_batch: int

    def is_done(self, entry: ShardOffset, read: ShardRead | None, batch: int) -> bool:
        """Return whether every record that the shard had at the start of the run is read.

        `read` is its read in the batch number `batch`.
        """
        if batch <= self.after_batch:
            return False
        if read is None:
            return entry.done
        return read.seen.at_tip or (read.end.arrival_ms or 0) >= self.arrival_ms


def next_step(plan: BatchPlan, facts: Facts, options: SparkOptions) -> Step:
    """Return what the driver does now. The first case that applies decides:

    1. A fan-out read may not subscribe again yet, or an outage has not ended: wait.
    2. An AvailableNow run is over: end it.
    3. No shard can be read: wait.
    4. No task has read the last batch, or an AvailableNow run found nothing: plan one batch in each `probeInterval`.
    5. There is more to read, or a batch is due: plan a batch.
    6. The stream is quiet: watch it until something is new or a batch is due.

    In cases 2, 3 and 6, first list the streams once if a shard has ended and its children are not known.
    """
    claims, now_ms = plan.claims, facts.now_ms
    earliest_ms = max(min(claims.subscribed_ms, facts.seen_ms) + options.fan_out_window_ms, facts.retry_at_ms)
    if now_ms < earliest_ms:
        return Wait(earliest_ms, may_be_new=now_ms >= facts.retry_at_ms)
    may_list = plan.has_unlisted_ends and not facts.has_listed
    if plan.is_run_over:
        return Decision.LIST if may_list else Decision.FINISH
    if not plan.readable:
        return Decision.LIST if may_list else Wait(now_ms)
    # The clock may have been set back since the last batch was planned, or that driver's clock was ahead.
    is_set_back = plan.previous.planned_ms > now_ms
    probe_at_ms = now_ms if is_set_back else plan.previous.planned_ms + options.probe_ms
    is_repeated = claims.is_unread or (plan.is_available_now and plan.read_everything and claims.is_quiet)
    if is_repeated and now_ms < probe_at_ms:
        return Wait(probe_at_ms)
    due_ms = max(plan.due_ms, probe_at_ms)
    has_more = plan.is_available_now or not plan.read_everything or facts.found_new
    if is_repeated or has_more or now_ms >= due_ms:
        return Decision.PLAN
    until_ms = min(due_ms, now_ms + max(options.probe_ms, SHORTEST_WATCH_MS))
    return Decision.LIST if may_list else Watch(until_ms, first_look=not claims.is_quiet)


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that `next_step` needs, in addition to the plan and the options. Times are epoch ms.

    - `now_ms`: the driver's time.
    - `retry_at_ms`: the time before which no batch may run, because the reads of the last batch had no response; or 0.
    - `found_new`: whether the driver's polling of quiet shards has found something, or could not read every shard in time.
    - `has_listed`: whether the streams were listed for this batch.
    - `seen_ms`: when the claims of the last batch were first seen. A claim with a later time is from an executor whose clock is ahead.
    """

    now_ms: int
    retry_at_ms: int
    found_new: bool
    has_listed: bool
    seen_ms: int


class Decision(Enum):
    """An action that the driver takes at once."""

    PLAN = "run the batch"
    LIST = "list the streams, and plan again: there may be children that no response has named"
    FINISH = "the run has read everything that was available"


@dataclass(frozen=True, slots=True)
class Wait:
    """A step in which the driver runs no batch before `until_ms` (epoch ms).

    - `may_be_new`: whether records may have arrived since the last reads.
    """

    until_ms: int
    may_be_new: bool = False


@dataclass(frozen=True, slots=True)
class Watch:
    """A step in which the driver polls all shards until one has something new. If none has, it runs no batch before `until_ms` (epoch ms).

    - `first_look`: whether the last batch had records, so that there may already be more. Then the next batch runs at once, unless one read
      of every shard within `FIRST_LOOK_SECONDS` finds nothing.
    """

    until_ms: int
    first_look: bool


Step = Decision | Wait | Watch


SHORTEST_WATCH_MS = 1_000
TIP_CONFIRMATION_MS = 3_600_000
"""How often a quiet shard is read to confirm that it has no newer record (ms). The time of this read is stored.

It must be far below the shortest retention (24 h). After a stop, a query may have lost records if longer than the retention has passed
since the stored time, and since its last record.
"""


def _after_read(entry: ShardOffset, read: ShardRead | None, previous: BatchOffset, inputs: PlanInputs) -> ShardOffset:
    """Return the entry of the shard after the batch `previous`. `read` is None if no task has stored a claim for the shard."""
    if entry.key in inputs.lost:
        state = entry.state if read is None else read.end
        seen_ms = latest(state.arrival_ms, state.tip_ms, state.seen_ms)
        return replace(entry, state=replace(state, ended=True, seen_ms=seen_ms), ended_ms=inputs.now_ms)
    run = inputs.available_now
    done = run is not None and run.is_done(entry, read, previous.batch)
    if read is None:
        return replace(entry, last_records=0, done=done)
    silence = entry.silence.after(read.seen, read.records)
    return replace(
        entry,
        state=read.end,
        # The offset need not store these: `silence` has `tip_seen_ms`, and the children become new shards.
        seen=msgspec.structs.replace(read.seen, tip_seen_ms=None, children=()),
        silence=silence,
        idle=inputs.alignment.is_idle(silence, read.seen),
        records=entry.records + read.records,
        last_records=read.records,
        ended_ms=inputs.now_ms if read.end.ended else None,
        done=done,
        empty_windows=0 if read.made_progress else entry.empty_windows + 1,
    )


def _with_held_time(entry: ShardOffset, emit_limit: int | None, elapsed_ms: int) -> ShardOffset:
    """Return the shard's entry with `elapsed_ms` added to `held`, if its next record had to wait above the emit limit."""
    if entry.seen.next_watermark is None or entry.state.ended:
        return entry
    batches = entry.held.batches + (1 if is_held(entry, emit_limit) else 0)
    return replace(entry, held=HeldSoFar(entry.held.ms + max(0, elapsed_ms), batches))


def _is_readable(entry: ShardOffset, shards: Mapping[str, ShardOffset], emit_limit: int | None) -> bool:
    if entry.state.ended or entry.done:
        return False
    return is_startable(entry, shards) and not is_held(entry, emit_limit)


def _tasks(readable: Sequence[ShardOffset], batch: int, inputs: PlanInputs) -> dict[str, int]:
    """Return which task reads each shard of the batch: the number of the task, by `Shard.key`.

    If the record limit is below the number of shards, a batch reads only some of them, and the next batch reads others.
    """
    reading = list(readable)
    if inputs.limit is not None and inputs.limit < len(reading):
        first = batch * inputs.limit % len(reading)
        reading = (reading[first:] + reading[:first])[: inputs.limit]
    tasks = min(inputs.tasks_for(len(reading)), len(reading))
    return {entry.key: number % tasks for number, entry in enumerate(reading)}


def _is_run_over(offset: BatchOffset, claims: BatchClaims, run: AvailableNow | None) -> bool:
    """Return whether an AvailableNow run has read everything, or its sink did not read the last batch.

    A shard whose parent is unread does not count. Its parent counts, unless it was split after the start of the run.
    """
    if run is None or offset.batch - 1 <= run.after_batch:
        return False
    shards = offset.shards
    return claims.is_unread or all(
        entry.done or entry.state.ended or not is_startable(entry, shards) for entry in shards.values()
    )


def _read_everything(
    previous: BatchOffset, offset: BatchOffset, claims: BatchClaims, readable: Sequence[ShardOffset]
) -> bool:
    """Return whether every shard was read to its tip, or to a record that is still above the emit limit.

    If the record limit is below the number of shards, a batch reads only some of them. For the others it is enough that an earlier batch
    reached the tip, because the watch for new data (`NewDataWatch`) finds records that arrived since.
    """
    holds_nothing = all(entry.seen.next_watermark is None for entry in offset.shards.values())
    is_same_limit = previous.emit_limit == offset.emit_limit or holds_nothing
    is_unchanged = previous.shards.keys() == offset.shards.keys() and is_same_limit
    all_seen = all(entry.key in claims.shards or entry.seen.at_tip for entry in readable)
    return previous.batch > 0 and is_unchanged and all_seen and claims.is_at_end


def _due_ms(offset: BatchOffset, readable: Sequence[ShardOffset], alignment: AlignmentSettings) -> int:
    """Return when a batch must run even if no new record arrives (epoch ms).

    From time to time each shard is read to confirm that it is at its tip. While records wait above the emit limit, the silent shards that
    hold them back must also be read, until they have been silent for long enough to count as idle.
    """
    due = [(entry.silence.tip_ms or offset.planned_ms) + TIP_CONFIRMATION_MS for entry in readable]
    idle = alignment.idle_intervals
    if not idle.waits_for_every_shard and any(
        entry.seen.next_watermark is not None for entry in offset.shards.values()
    ):
        due += [_idle_from_ms(entry, idle.watermarks_ms, offset) for entry in readable if not entry.idle]
    return min(due, default=offset.planned_ms + TIP_CONFIRMATION_MS)


def _idle_from_ms(entry: ShardOffset, idle_ms: int, offset: BatchOffset) -> int:
    last_tip_ms = offset.planned_ms if entry.silence.tip_ms is None else entry.silence.tip_ms
    return last_tip_ms + max(0, idle_ms - entry.silence.ms)
