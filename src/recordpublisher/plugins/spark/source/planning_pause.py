"""PlanningPause: a query on quiet shards plans no batch. The driver polls the shards until something arrives or a batch is due."""

from __future__ import annotations

from dataclasses import dataclass

from .batch_alignment import AlignmentSettings
from .batch_offset import BatchOffset, ShardOffset
from .last_batch_claims import BatchClaims
from .shard_grouping import readable_shards

TIP_CONFIRMATION_MS = 3_600_000
"""How often the tip of a quiet shard is confirmed and stored. It must be far below the shortest retention (24 h): whether records were lost
while the job was stopped is judged by the later one of last record and last tip (S5)."""


@dataclass(frozen=True, slots=True)
class PlanningPause:
    """No batch is planned after that of `plan` before `until_ms`, unless something new arrives."""

    plan: str
    until_ms: int


def found_nothing_new(start: BatchOffset, offset: BatchOffset, claims: BatchClaims) -> bool:
    """Whether the last batch, planned by `start`, read nothing new, and every shard to read was at its tip.

    With a limit below the number of shards a batch reads only some of them. For the others the tip that an earlier batch reached is enough:
    the watch finds what arrived since.
    """
    is_unchanged = start.shards.keys() == offset.shards.keys() and start.emit_limit == offset.emit_limit
    all_seen = all(entry.key in claims.shards or entry.at_tip for entry in _all_readable(offset))
    return start.batch > 0 and is_unchanged and all_seen and claims.is_quiet


def next_batch_due_ms(offset: BatchOffset, alignment: AlignmentSettings) -> int:
    """When a batch must run although nothing new arrived, epoch ms.

    Tips are confirmed from time to time. And while records wait above the emit limit, the silent shards that hold them back must be
    read again, until their silence was observed for long enough (W3).
    """
    shards = _all_readable(offset)
    due = [(entry.tip_ms or offset.planned_ms) + TIP_CONFIRMATION_MS for entry in shards]
    if alignment.idle_interval >= 0 and any(entry.next_watermark is not None for entry in offset.shards.values()):
        due += [_idle_from_ms(entry, alignment.idle_interval, offset) for entry in shards if not entry.idle]
    return min(due, default=offset.planned_ms + TIP_CONFIRMATION_MS)


def _idle_from_ms(entry: ShardOffset, idle_interval: int, offset: BatchOffset) -> int:
    last_tip_ms = offset.planned_ms if entry.tip_ms is None else entry.tip_ms
    return last_tip_ms + max(0, idle_interval - entry.silent_ms)


def _all_readable(offset: BatchOffset) -> list[ShardOffset]:
    return readable_shards(offset, limited=False)
