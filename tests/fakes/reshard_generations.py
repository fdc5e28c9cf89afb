"""Five generations of shards on virtual time: splits and merges happen while a job reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import VirtualClock

from simulation.simulated_stream import SimulatedShard
from simulation.source import SimulatedSource

Row = tuple[str, int]
"""A record: its shard's key and its index in the shard."""


class Family:
    """A stream with five generations of shards.

    `aggregate`: sub-records in each record. `names_children`: whether the read that ends a shard names its children. A closed shard is
    listed for `retention` more seconds.
    """

    def __init__(self, aggregate: int = 1, names_children: bool = True, retention: float = 1e9) -> None:
        self.plan = SimpleNamespace(aggregate=aggregate, has_empty_reads=False)
        self.aggregate = aggregate
        self._tells_children = names_children
        self._retention = retention
        self.shards: dict[str, SimulatedShard] = {}
        self._play()

    def __getitem__(self, key: str) -> SimulatedShard:
        return self.shards[key]

    @property
    def rows(self) -> list[Row]:
        return [(key, index) for key, each in self.shards.items() for index in range(len(each.times))]

    def listed(self, now: float) -> list[Shard]:
        living = [s for s in self.shards.values() if s.opens <= now < (s.closes or now) + self._retention]
        return [each.shard for each in living]

    def _play(self) -> None:
        self._born(0, a=7, b=5)
        self._reshard(3, "a", c=4, d=0)
        self._reshard(3, "d b", e=5)  # from two shards to three: d runs for no time
        self._reshard(6, "c", f=3, g=4)
        self._reshard(6, "e", h=3, i=0)
        self._reshard(9, "f", j=2, k=2)
        self._reshard(9, "g", l=1, m=0)
        self._reshard(9, "h", n=2, o=1)
        self._reshard(9, "i", p=1, q=1)
        self._reshard(12, "k l", r=3)
        self._reshard(12, "m n", s=2)
        for leaf in "jopqrs":
            self._close(15, leaf)

    def _born(self, opens: float, *parents: str, **records: int) -> tuple[Shard, ...]:
        for name, count in records.items():
            shard = Shard("s", name, parents)
            times = [1000 * int(opens) + index for index in range(count * self.plan.aggregate)]
            arrivals = [opens + 0.2 * (index // self.plan.aggregate) for index in range(len(times))]
            self.shards[shard.key] = SimulatedShard(shard, opens, arrivals, times)
        return tuple(self.shards[f"s/{name}"].shard for name in records)

    def _reshard(self, at: float, parents: str, **records: int) -> None:
        children = self._born(at, *parents.split(), **records)
        for parent in parents.split():
            self._close(at, parent, *children)

    def _close(self, at: float, name: str, *children: Shard) -> None:
        self.shards[f"s/{name}"].closes = at
        self.shards[f"s/{name}"].children = children if self._tells_children else ()


class OneLoop:
    """The simulator for processes that share one virtual loop: none is suspended alone."""

    @property
    def now(self) -> float:
        return VirtualClock().monotonic()

    def at(self, moment: float, call: Callable[[], Any]) -> None:
        asyncio.get_running_loop().call_at(moment, call)

    def after(self, seconds: float, call: Callable[[], Any]) -> None:
        asyncio.get_running_loop().call_later(seconds, call)


class FamilySource(SimulatedSource):
    """Lists the shards of a Family."""

    def __init__(self, family: Family, seed: int, continuations: bool) -> None:
        super().__init__(OneLoop(), None, family, seed, continuations)

    async def list_shards(self, stream: str) -> list[Shard]:
        return self.stream.listed(self.simulator.now + 1e-9)

    async def shard_exists(self, shard: Shard) -> bool | None:
        return shard in await self.list_shards(shard.stream)
