"""Decides which worker should have each shard (E6). Pure: the same documents give all workers the same plan."""

import heapq
from collections.abc import Collection, Mapping

MIN_DIFFERENCE = 0.1
"""No shard moves between two workers whose shares differ by less than this part of the larger share."""


def balanced_owners(
    owners: Mapping[str, str | None], weights: Mapping[str, int], workers: Collection[str]
) -> dict[str, str]:
    """Return the worker that should have each shard: its present owner, or the worker that it should move to.

    `owners` has every shard that can be read; a free shard has None. First, each free shard goes to the worker with the smallest share,
    heaviest shard first. Then shards move from the worker with the largest share to the one with the smallest, one at a time, while that is
    worthwhile (`_Plan.best_move`). Every step reduces the sum of the squared shares, so the procedure ends. Applied to its own result, it
    moves nothing.
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
    while (move := plan.best_move()) is not None:
        weight, giver, receiver = move
        plan.give(plan.take_back(weight, giver), weight, receiver)
    return plan.owners


class _Plan:
    """Owns the shards of each worker by weight, and the sum of their weights, while a plan is made."""

    def __init__(self, workers: Collection[str]) -> None:
        self._shards: dict[str, dict[int, list[str]]] = {worker: {} for worker in sorted(workers)}
        self._shares = dict.fromkeys(self._shards, 0)

    @property
    def owners(self) -> dict[str, str]:
        """The worker of each shard."""
        return {
            shard: worker
            for worker, by_weight in self._shards.items()
            for shards in by_weight.values()
            for shard in shards
        }

    @property
    def smallest(self) -> str:
        """The worker with the smallest share."""
        return min(self._shares, key=lambda worker: (self._shares[worker], worker))

    def give(self, shard: str, weight: int, worker: str) -> None:
        """Give a shard to a worker."""
        heapq.heappush(self._shards[worker].setdefault(weight, []), shard)
        self._shares[worker] += weight

    def take_back(self, weight: int, worker: str) -> str:
        """Take from a worker its first shard of this weight, by name."""
        shards = self._shards[worker][weight]
        shard = heapq.heappop(shards)
        if not shards:
            del self._shards[worker][weight]
        self._shares[worker] -= weight
        return shard

    def best_move(self) -> tuple[int, str, str] | None:
        """Return the weight of a shard to move, its giver and its receiver, or None if no move is worthwhile.

        The receiver is the worker with the smallest share. The giver is the worker with the largest share that has a shard worth moving:
        the larger of the two shares must fall by more than half of that shard, and they must differ by more than `MIN_DIFFERENCE`.
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
