"""The watermark of a group: what one worker states for its shards, and the lowest of all (E8)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from recordpublisher.fetcher.coordination.active_minimum import lowest_active
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskStatus
from recordpublisher.fetcher.watermark_functions import raised

from ..documents.position_part import StoredPosition
from .group_view import GroupView


class ShardWatermark(NamedTuple):
    """With what a shard counts: its watermark (None: it had no record yet, and holds the others), or not at all while it is idle."""

    value: int | None
    is_idle: bool = False


def lowest_watermark(shards: Iterable[ShardWatermark]) -> ShardWatermark:
    """The lowest of those that are not idle; idle if all are, or there are none."""
    status, value = lowest_active(shard.value for shard in shards if not shard.is_idle)
    return ShardWatermark(value, status is SubtaskStatus.IDLE)


def highest_watermark(shards: Iterable[ShardWatermark]) -> int | None:
    """Return the highest of those that are not idle; None if none has a value."""
    return max((shard.value for shard in shards if not shard.is_idle and shard.value is not None), default=None)


class WorkerWatermark:
    """Owns the shards that this worker has given away lately.

    It counts a shard from its preparation on, and until the lease table names another worker and a while longer: others may still use
    an older reading of the table. So each shard is counted by somebody at any time.
    """

    def __init__(self, linger_seconds: float) -> None:
        self._linger_seconds = linger_seconds
        self._lingering: dict[str, tuple[ShardWatermark, float]] = {}

    def keep(self, shard: str, watermark: ShardWatermark, now: float) -> None:
        """The shard was lost: another worker has it, or its children follow."""
        self._lingering[shard] = watermark, now + self._linger_seconds

    def lowest(
        self, read: Mapping[str, ShardWatermark], stored: Iterable[StoredPosition], now: float
    ) -> ShardWatermark:
        """The lowest watermark of the shards that are read, of stored positions of others, and of lingering shards."""
        self._lingering = {shard: entry for shard, entry in self._lingering.items() if entry[1] > now}
        lingering = (watermark for watermark, _ in self._lingering.values())
        others = (ShardWatermark(each.state.watermark, each.is_idle) for each in stored)
        return lowest_watermark([*read.values(), *others, *lingering])


def group_watermark(view: GroupView, known: int | None, excluded: frozenset[str] = frozenset()) -> int | None:
    """The watermark of the group: it never falls below `known`, nor below what any worker knows.

    Workers that are sealed count as long as the lease table names them, except those `excluded` (the tracker timeout). A shard without an
    owner counts with the lowest watermark of its parents.
    """
    counted: list[ShardWatermark] = []
    for worker, record in view.records.items():
        known = raised(known, record.group_watermark)
        if not record.is_sealed or (worker in view.table.owners and worker not in excluded):
            counted.append(ShardWatermark(record.watermark, is_idle=not record.is_active))
    counted += [
        ShardWatermark(view.table.inherited_watermark(shard))
        for shard, lease in view.table.leases.items()
        if lease.owner is None and view.table.can_be_read(shard)
    ]
    return raised(known, lowest_watermark(counted).value)
