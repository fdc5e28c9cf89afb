"""Computes the watermark of a group: the lowest of the watermarks that its workers report for their shards (E8)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..global_watermark_rules import raised_watermark
from ..watermarks import ShardsStatus, lowest_active
from .planning import GroupView
from .position_documents import StoredPosition
from .worker_record import WorkerRecord


def group_watermark(view: GroupView, known: int | None, excluded: frozenset[str] = frozenset()) -> int | None:
    """Return the watermark of the group. It is never lower than `known`, the value that this worker knows.

    It is also never lower than a value that another worker has reported. A sealed worker counts while the lease table names it, except if
    it is in `excluded` (sealed for longer than the tracker timeout). A shard without an owner counts with the lowest watermark of its
    parents.
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


def is_above(record: WorkerRecord | None, group: int | None) -> bool:
    """Return whether the watermark of one worker is above that of the group, which then waits for other workers.

    - `record`: the worker's record from which `group` was computed. The worker's newest watermark may be higher, but the group learns of it
      only from the next heartbeat. An idle worker counts as above.
    - `group`: the watermark of the group.
    """
    if record is None or not record.is_active:
        return record is not None
    return record.watermark is not None and (group is None or group < record.watermark)


class ShardWatermark(NamedTuple):
    """The watermark with which a shard counts for the watermark of the group.

    - `value`: None before the shard's first record; the shard then holds back the others.
    - `is_idle`: an idle shard does not count.
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
    """Computes the watermark that this worker reports for its shards. Keeps the shards that the worker has recently released.

    Before a worker acquires a shard, it stores the shard's position. From then on it counts the shard. It stops counting some time after
    the lease table names another worker, because other workers may still use an older version of the table. Therefore, at any time, at
    least one worker counts each shard.
    """

    def __init__(self, linger_seconds: float) -> None:
        self._linger_seconds = linger_seconds
        self._lingering: dict[str, tuple[ShardWatermark, float]] = {}

    def keep(self, shard: str, watermark: ShardWatermark, now: float) -> None:
        """Continue to count a shard for a while after this worker has lost it to another worker, or to the shard's children."""
        self._lingering[shard] = watermark, now + self._linger_seconds

    def lowest(
        self, read: Mapping[str, ShardWatermark], stored: Iterable[StoredPosition], now: float
    ) -> ShardWatermark:
        """Return the lowest watermark of this worker's shards.

        - `read`: the watermarks of shards that are read.
        - `stored`: the positions of its other shards.
        - `now`: monotonic time in seconds. It decides which recently lost shards still count.
        """
        self._lingering = {shard: entry for shard, entry in self._lingering.items() if entry[1] > now}
        lingering = (watermark for watermark, _ in self._lingering.values())
        others = (ShardWatermark(each.state.watermark, each.is_idle) for each in stored)
        return lowest_watermark([*read.values(), *others, *lingering])
