"""Computes the watermark that one worker states for its shards, and the lowest of all workers (E8)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..watermark_rules import raised_watermark
from ..watermarks import ShardsStatus, lowest_active
from .planning import GroupView
from .position_documents import StoredPosition


class ShardWatermark(NamedTuple):
    """The watermark of a shard, as it counts for the watermark of the group. An idle shard does not count.

    `value` is None before the shard's first record; the shard then holds back the others.
    """

    value: int | None
    is_idle: bool = False


def lowest_watermark(shards: Iterable[ShardWatermark]) -> ShardWatermark:
    """Return the lowest watermark of the shards that are not idle. The result is idle if no shard counts."""
    status, value = lowest_active(shard.value for shard in shards if not shard.is_idle)
    return ShardWatermark(value, status is ShardsStatus.IDLE)


def highest_watermark(shards: Iterable[ShardWatermark]) -> int | None:
    """Return the highest watermark of the shards that are not idle, or None if none has a value."""
    return max((shard.value for shard in shards if not shard.is_idle and shard.value is not None), default=None)


class WorkerWatermark:
    """Owns the shards that this worker has recently released.

    The worker counts a shard from its preparation until some time after the lease table names another worker, because other workers may
    still use an older version of the table. So at any time at least one worker counts each shard.
    """

    def __init__(self, linger_seconds: float) -> None:
        self._linger_seconds = linger_seconds
        self._lingering: dict[str, tuple[ShardWatermark, float]] = {}

    def keep(self, shard: str, watermark: ShardWatermark, now: float) -> None:
        """Continue to count a lost shard for a while: another worker holds it, or its children follow."""
        self._lingering[shard] = watermark, now + self._linger_seconds

    def lowest(
        self, read: Mapping[str, ShardWatermark], stored: Iterable[StoredPosition], now: float
    ) -> ShardWatermark:
        """Return the lowest watermark of the shards that are read, of the stored positions of other shards, and of recently lost shards."""
        self._lingering = {shard: entry for shard, entry in self._lingering.items() if entry[1] > now}
        lingering = (watermark for watermark, _ in self._lingering.values())
        others = (ShardWatermark(each.state.watermark, each.is_idle) for each in stored)
        return lowest_watermark([*read.values(), *others, *lingering])


def group_watermark(view: GroupView, known: int | None, excluded: frozenset[str] = frozenset()) -> int | None:
    """Return the watermark of the group. It never falls below `known`, nor below a value that any worker knows.

    Sealed workers count while the lease table names them, except those in `excluded` (because of the tracker timeout). A shard without an
    owner counts with the lowest watermark of its parents.
    """
    counted: list[ShardWatermark] = []
    for worker, record in view.records.items():
        known = raised_watermark(known, record.group_watermark)
        if not record.is_sealed or (worker in view.table.owners and worker not in excluded):
            counted.append(ShardWatermark(record.watermark, is_idle=not record.is_active))
    counted += [
        ShardWatermark(view.table.inherited_watermark(shard))
        for shard, lease in view.table.leases.items()
        if lease.owner is None and view.table.can_be_read(shard)
    ]
    return raised_watermark(known, lowest_watermark(counted).value)
