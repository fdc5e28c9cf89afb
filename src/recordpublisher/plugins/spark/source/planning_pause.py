"""When no batch is planned for a while.

PlanningPause: all shards are quiet, and the driver polls them until something arrives or a batch is due. UnansweredReads: Kinesis is away.
"""

from __future__ import annotations

from dataclasses import dataclass

from recordpublisher.publishers.clock import Clock

from ..options import SparkOptions
from ..outages import Outage, OutageWatch
from .alignment import AlignmentSettings
from .batch_claims import BatchClaims
from .offset import BatchOffset, ShardOffset
from .shard_grouping import MAX_DOUBLINGS, readable_shards

TIP_CONFIRMATION_MS = 3_600_000
"""How often the tip of a quiet shard is confirmed and stored. It must be far below the shortest retention (24 h): whether records were lost
while the job was stopped is judged by the later one of last record and last tip (S5)."""

FIRST_LOOK_SECONDS = 1.0
"""How long planning waits for a first look at every shard, after a batch that read records to all tips."""

NO_RESPONSE = "no response to any read, however long it was waited for"


@dataclass(frozen=True, slots=True)
class PlanningPause:
    """No batch is planned after that of `plan` before `until_ms`, unless something new arrives."""

    plan: str
    until_ms: int


def has_read_everything(start: BatchOffset, offset: BatchOffset, claims: BatchClaims) -> bool:
    """Whether the last batch, planned by `start`, left nothing that the next one could emit, as of its reads.

    Every shard was read to its tip, or to a record that still lies above the emit limit. With a limit below the number of shards a batch
    reads only some of them. For the others the tip that an earlier batch reached is enough: the watch finds what arrived since.
    """
    holds_nothing = all(entry.seen.next_watermark is None for entry in offset.shards.values())
    is_same_limit = start.emit_limit == offset.emit_limit or holds_nothing
    is_unchanged = start.shards.keys() == offset.shards.keys() and is_same_limit
    all_seen = all(entry.key in claims.shards or entry.seen.at_tip for entry in _all_readable(offset))
    return start.batch > 0 and is_unchanged and all_seen and claims.is_at_end


def next_batch_due_ms(offset: BatchOffset, alignment: AlignmentSettings) -> int:
    """When a batch must run although nothing new arrived, epoch ms.

    Tips are confirmed from time to time. And while records wait above the emit limit, the silent shards that hold them back must be
    read again, until their silence was observed for long enough (W3).
    """
    shards = _all_readable(offset)
    due = [(entry.silence.tip_ms or offset.planned_ms) + TIP_CONFIRMATION_MS for entry in shards]
    if alignment.idle_interval >= 0 and any(entry.seen.next_watermark is not None for entry in offset.shards.values()):
        due += [_idle_from_ms(entry, alignment.idle_interval, offset) for entry in shards if not entry.idle]
    return min(due, default=offset.planned_ms + TIP_CONFIRMATION_MS)


def _idle_from_ms(entry: ShardOffset, idle_interval: int, offset: BatchOffset) -> int:
    last_tip_ms = offset.planned_ms if entry.silence.tip_ms is None else entry.silence.tip_ms
    return last_tip_ms + max(0, idle_interval - entry.silence.ms)


def _all_readable(offset: BatchOffset) -> list[ShardOffset]:
    return readable_shards(offset, limited=False)


class UnansweredReads:
    """Owns the shards whose reads fail, and when the next batch may try again.

    A shard fails if its whole read got no response and its last call failed. While others are read, batches follow each other as usual.
    """

    def __init__(self, options: SparkOptions, clock: Clock) -> None:
        self._watch = OutageWatch(options.max_outage_ms, clock)
        self._clock = clock
        self._noted_plan = ""
        self.retry_at_ms = 0

    @property
    def outage(self) -> Outage | None:
        """The shard that has failed for the longest."""
        return self._watch.longest

    def note(self, offset: BatchOffset, claims: BatchClaims) -> None:
        """Note how the reads of an offset's batch ended; once for each batch. Raises: OutageError."""
        if offset.plan == self._noted_plan:
            return
        self._noted_plan, pauses = offset.plan, []
        has_response = any(read.had_response for read in claims.shards.values())
        for key, read in claims.shards.items():
            is_silent = not has_response and offset.shards[key].empty_windows >= MAX_DOUBLINGS
            failure = read.seen.failure or (NO_RESPONSE if is_silent else None)
            if read.had_response:
                self._watch.on_success(key)
            elif failure is not None:
                pauses.append(self._watch.on_failure(f"{key}: {failure}", key))
        pause = max(pauses, default=0.0) if not has_response else 0.0
        self.retry_at_ms = self._clock.now_ms() + round(pause * 1000)
