"""Decides from a group's documents which worker should have each shard (the plan), so that the loads of the workers are about equal.

All code here is pure: the same documents give all workers the same plan. `balanced_owners` makes the plan (E6), `GroupView` is one read of
the documents, and `StatedLoadLevels` rounds loads to coarse levels.
"""

import heapq
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ..shards.read_state import latest
from .lease_settings import LeaseSettings
from .lease_table import LeaseTable
from .worker_record import WorkerRecord

MIN_DIFFERENCE = 0.1
"""A shard moves between two workers only if their shares differ by more than this fraction of the larger share."""


def balanced_owners(
    owners: Mapping[str, str | None], weights: Mapping[str, int], workers: Collection[str]
) -> dict[str, str]:
    """Return the worker that should have each shard: its present owner, or the worker that it should move to.

    `owners` has every shard that can be read; a free shard has None. A worker's share is the sum of its shards' weights. First, each free
    shard goes to the worker with the smallest share, heaviest shard first. Then shards move from the worker with the largest share to the
    one with the smallest, one at a time, while that is worthwhile (`_Plan.best_move`).

    If the function is applied to its own result, nothing moves.
    """
    if not workers:
        return {}
    plan = _Plan(workers)
    for shard, owner in owners.items():
        if owner is not None:
            plan.give(shard, weights[shard], owner)
    free = (shard for shard, owner in owners.items() if owner is None)
    for shard in sorted(free, key=lambda each: (-weights[each], each)):
        plan.give(shard, weights[shard], plan.smallest)
    # Every step reduces the sum of the squared shares, so the loop ends.
    while (move := plan.best_move()) is not None:
        weight, giver, receiver = move
        plan.give(plan.take_back(weight, giver), weight, receiver)
    return plan.owners


class _Plan:
    """The shards of each worker by weight, and the sum of their weights, while a plan is made."""

    def __init__(self, workers: Collection[str]) -> None:
        self._shards: dict[str, dict[int, list[str]]] = {worker: {} for worker in sorted(workers)}
        self._shares = dict.fromkeys(self._shards, 0)

    @property
    def owners(self) -> dict[str, str]:
        return {
            shard: worker
            for worker, by_weight in self._shards.items()
            for shards in by_weight.values()
            for shard in shards
        }

    @property
    def smallest(self) -> str:
        return min(self._shares, key=lambda worker: (self._shares[worker], worker))

    def give(self, shard: str, weight: int, worker: str) -> None:
        heapq.heappush(self._shards[worker].setdefault(weight, []), shard)
        self._shares[worker] += weight

    def take_back(self, weight: int, worker: str) -> str:
        """Remove a worker's first shard of this weight, in the order of names, and return the shard."""
        shards = self._shards[worker][weight]
        shard = heapq.heappop(shards)
        if not shards:
            del self._shards[worker][weight]
        self._shares[worker] -= weight
        return shard

    def best_move(self) -> tuple[int, str, str] | None:
        """Return the weight of a shard to move, its giver and its receiver, or None if no move is worthwhile.

        The receiver is the worker with the smallest share. The giver is the one with the largest share that has a shard worth moving. A
        move must meet both conditions:

        - It reduces the larger of the two shares by more than half of the shard's weight.
        - The shares differ by more than the fraction `MIN_DIFFERENCE` of the giver's share.
        """
        receiver = self.smallest
        for giver in sorted(self._shares, key=lambda worker: (-self._shares[worker], worker)):
            difference = self._shares[giver] - self._shares[receiver]
            if difference <= MIN_DIFFERENCE * self._shares[giver]:
                return None
            gains = {weight: min(weight, difference - weight) for weight in self._shards[giver]}
            worthwhile = [weight for weight, gain in gains.items() if gain * 2 > weight]
            if worthwhile:
                return min(worthwhile, key=lambda weight: (-gains[weight], weight)), giver, receiver
        return None


@dataclass(frozen=True, slots=True)
class GroupView:
    """One read of the group by a worker: the lease table, and then the record of each worker."""

    table: LeaseTable
    records: Mapping[str, WorkerRecord]

    @property
    def members(self) -> tuple[str, ...]:
        """The workers among which shards are shared: those that are neither sealed (declared dead) nor leaving, nor asked to leave."""
        members = (name for name, record in self.records.items() if not record.is_sealed and not record.is_leaving)
        return tuple(sorted(set(members) - self.table.drained))

    @property
    def unsealed(self) -> set[str]:
        """The workers that were not declared dead (sealed)."""
        return {name for name, record in self.records.items() if not record.is_sealed}

    @property
    def max_watermark(self) -> int | None:
        """The highest watermark of any shard that workers have reported. Dead (sealed) workers do not count."""
        return latest(*(record.max_watermark for record in self.records.values() if not record.is_sealed))

    @property
    def has_handover(self) -> bool:
        """Whether shards are being transferred. Workers then read the group's documents more often."""
        unsealed = (record for record in self.records.values() if not record.is_sealed)
        return any(record.released or record.is_leaving for record in unsealed)

    def has_held_besides(self, worker: str) -> bool:
        """Return whether alignment holds back a shard of another worker."""
        return any(record.is_held and not record.is_sealed for name, record in self.records.items() if name != worker)

    def is_free(self, shard: str) -> bool:
        """Return whether the shard can be acquired: no worker has held it yet, or its owner was sealed (declared dead) or has released it.

        An owner without a record does not count as sealed, because the records may be slightly old.
        """
        lease = self.table.leases[shard]
        if not self.table.can_be_read(shard):
            return False
        if lease.owner is None:
            return True
        record = self.records.get(lease.owner)
        return record is not None and (record.is_sealed or record.has_released(shard, lease.epoch))

    def shards_of(self, workers: Collection[str]) -> list[str]:
        """Return every shard that can be read and whose lease belongs to one of these workers."""
        leases = self.table.leases.items()
        return [shard for shard, lease in leases if lease.owner in workers and self.table.can_be_read(shard)]

    def free_shards(self) -> list[str]:
        """Return every shard that can be acquired."""
        return [shard for shard in self.table.leases if self.is_free(shard)]

    def plan(self) -> dict[str, str]:
        """Return which worker should have each shard: the plan.

        Shards that a leaving worker still holds are left out, because they cannot be acquired yet.
        """
        members = set(self.members)
        owners: dict[str, str | None] = {}
        for shard, lease in self.table.leases.items():
            if self.is_free(shard):
                owners[shard] = None
            elif lease.owner in members and not lease.ended:
                owners[shard] = lease.owner
        # Shards that the job does not read now are shared apart, because a worker that only keeps their positions has nothing to do.
        read = {shard: owner for shard, owner in owners.items() if self.table.is_of_job(shard)}
        kept = {shard: owner for shard, owner in owners.items() if shard not in read}
        weights = {shard: weight(self.load_level(shard)) for shard in owners}
        return balanced_owners(read, weights, members) | balanced_owners(kept, weights, members)

    def shards_to_take(
        self, worker: str, plan: Mapping[str, str], free_seconds: Mapping[str, float], settings: LeaseSettings
    ) -> set[str]:
        """Return the free shards that `worker` may acquire: by the plan, or because they have been free for `settings.reserved_seconds`."""
        patience = settings.reserved_seconds
        return {shard for shard, seconds in free_seconds.items() if plan.get(shard) == worker or seconds > patience}

    def shards_to_give(self, worker: str, plan: Mapping[str, str], shards: Iterable[str]) -> set[str]:
        """Return which of `shards`, all held by `worker`, another worker should have according to the plan."""
        return {shard for shard in shards if plan.get(shard, worker) != worker}

    def withheld(self, plan: Mapping[str, str], reporter: str) -> dict[str, list[str]]:
        """Return for each worker the shards that it should have released and has not, although it sends heartbeats.

        These are shards that another worker should have according to the plan, and all shards of a worker that is leaving or was asked to
        leave. Each shard is reported by one worker only; the result has the shards that `reporter` has to report.
        """
        found: dict[str, list[str]] = {}
        members, unsealed = self.members, self.unsealed
        for shard, lease in self.table.leases.items():
            owner = lease.owner
            if owner is None or owner not in unsealed or reporter != _first_besides(owner, members):
                continue
            is_due = owner not in members or self.shards_to_give(owner, plan, [shard])
            if is_due and not lease.ended and not self.is_free(shard):
                found.setdefault(owner, []).append(shard)
        return found

    def load_level(self, shard: str) -> int:
        """Return the load level (the rounded load) that the owner of the shard reports, or 0 if it reports none."""
        owner = self.table.leases[shard].owner
        record = None if owner is None else self.records.get(owner)
        return 0 if record is None else record.load_level(shard)


def _first_besides(worker: str, members: Iterable[str]) -> str | None:
    return next((member for member in members if member != worker), None)


# Measures the load of shards, and rounds it to coarse levels, so that all workers plan with the same numbers (E6).

FLOOR_BYTES_PER_SECOND = 1_000.0
"""The load that a shard without traffic counts as (bytes per second). Shards at rest all count the same, so they are shared by number."""
LEVEL_RATIO = 1.25
_UNITS_PER_FLOOR = 1_000
MAX_LEVEL = 60
RATE_SECONDS = 60.0
"""Approximate time over which a load is averaged. A shard's load is known when it was read for this time (seconds)."""


def next_load_level(stated: int, bytes_per_second: float) -> int:
    """Return the load level (rounded load) that the worker should report next for a shard.

    The level stays at `stated` until the load differs from it by more than a quarter, or has fallen to `FLOOR_BYTES_PER_SECOND`.
    """
    exact = math.log(max(bytes_per_second, FLOOR_BYTES_PER_SECOND) / FLOOR_BYTES_PER_SECOND, LEVEL_RATIO)
    # The floor is within a quarter of level 1. Without `exact > 0` an idle shard would stay at level 1, and idle shards would not be
    # shared equally.
    is_close = abs(exact - stated) <= 1 and exact > 0
    return stated if is_close else min(round(exact), MAX_LEVEL)


def weight(level: int) -> int:
    """Return the weight of a shard with this load level: an integer, so that sums of weights do not depend on their order."""
    return round(_UNITS_PER_FLOOR * LEVEL_RATIO ** max(0, min(level, MAX_LEVEL)))


class LoadRate:
    """Averages the load of one shard (bytes per second). Bytes that were read `t` seconds ago count with a factor of e^(-t / 60 s).

    `now`: when the worker began to read the shard (monotonic seconds).
    """

    def __init__(self, now: float) -> None:
        self._began = self._observed = now
        self._bytes = 0
        self._rate = 0.0

    def observe(self, total_bytes: int, now: float) -> None:
        """Update the average. `total_bytes`: number of bytes read from the shard so far."""
        seconds = now - self._observed
        if seconds > 0:
            kept = math.exp(-seconds / RATE_SECONDS)
            self._rate = kept * self._rate + (1 - kept) * (total_bytes - self._bytes) / seconds
            self._bytes, self._observed = total_bytes, now

    @property
    def bytes_per_second(self) -> float | None:
        """Load in bytes per second; None in the first minute."""
        seconds = self._observed - self._began
        return None if seconds < RATE_SECONDS else self._rate / (1 - math.exp(-seconds / RATE_SECONDS))


class StatedLoadLevels:
    """Keeps the load level (rounded load) that this worker reports for each of its shards.

    A shard begins with the level that its previous owner reported. If it began with the lowest level, each move of a shard would look like
    a change of loads, and cause another move.
    """

    def __init__(self) -> None:
        self._levels: dict[str, int] = {}

    def inherit(self, shard: str, level: int) -> None:
        """Set the level of a shard that this worker acquires: the level that the previous owner has reported."""
        self._levels[shard] = level

    def state(self, owned: Iterable[str], loads: Mapping[str, float]) -> dict[str, int]:
        """Update the levels from `loads` (bytes per second). Return the level of each shard in `owned`, but leave out the lowest level."""
        for shard, load in loads.items():
            self._levels[shard] = next_load_level(self._levels.get(shard, 0), load)
        return {shard: level for shard in owned if (level := self._levels.get(shard, 0)) > 0}
