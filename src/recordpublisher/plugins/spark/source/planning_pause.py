"""How long a query may rest: a quiet stream costs no batches."""

from __future__ import annotations

from dataclasses import dataclass

from .batch_alignment import AlignmentSettings
from .batch_claims import BatchClaims
from .batch_offset import BatchOffset, ShardOffset
from .shard_grouping import readable_shards

CONFIRM_MS = 3_600_000
"""How long a shard's last confirmed tip stays unwritten: far below the shortest retention (24 h), since the later of last record and last
tip decides whether records were lost while the job stood still (S5)."""


@dataclass(frozen=True, slots=True)
class PlanningPause:
    """Nothing is to be planned after the batch of `plan` before `until_ms` (epoch ms), unless something new comes."""

    plan: str
    until_ms: int


def found_nothing_new(start: BatchOffset, offset: BatchOffset, claimed: BatchClaims) -> bool:
    """Whether the last batch, planned by `start`, brought nothing, and it or one before it stood at the tip of every other shard to read.

    A limit below the number of shards lets a batch look at some of them only; what came to the others since, the watch will see.
    """
    same = start.shards.keys() == offset.shards.keys() and start.emit_limit == offset.emit_limit
    all_seen = all(entry.key in claimed.shards or entry.at_tip for entry in _all_runnable(offset))
    return start.batch > 0 and same and all_seen and claimed.is_quiet


def next_batch_due_ms(offset: BatchOffset, alignment: AlignmentSettings) -> int:
    """When a batch must look although nothing new came, epoch ms.

    Tips are confirmed from time to time; and while records are held, the silent shards that hold them must be seen silent for long
    enough to be idle (W3).
    """
    shards = _all_runnable(offset)
    looks = [(entry.tip_ms or offset.planned_ms) + CONFIRM_MS for entry in shards]
    if alignment.idle_interval >= 0 and any(entry.next_watermark is not None for entry in offset.shards.values()):
        looks += [_idle_from(entry, alignment.idle_interval, offset) for entry in shards if not entry.idle]
    return min(looks, default=offset.planned_ms + CONFIRM_MS)


def _idle_from(entry: ShardOffset, idle_interval: int, offset: BatchOffset) -> int:
    seen = offset.planned_ms if entry.tip_ms is None else entry.tip_ms
    return seen + max(0, idle_interval - entry.silent_ms)


def _all_runnable(offset: BatchOffset) -> list[ShardOffset]:
    return readable_shards(offset, limited=False)
