"""SimulatedStream: shards with skew, gaps, disorder, wrong event times, silences, splits, merges, failing reads, inconsistent listings."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from functools import cached_property

from recordpublisher.publishers.shards import Shard

FUTURE_LIMIT_MS = 3_600_000
WRONG_CLOCK_MS = 10**12
YEAR_1_MS, YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000
"""The bounds of the event times that can be used (W12)."""
EXTREME_TIMES = (-(2**63) - 1, -(2**63), YEAR_1_MS - 1, YEAR_1_MS, YEAR_10000_MS - 1, YEAR_10000_MS, 2**63 - 1, 10**300)


@dataclass(frozen=True)
class StreamPlan:
    """The parameters of a stream; `seed` decides the rest."""

    seed: int
    roots: int
    records: int
    reshards: int
    aggregate: int
    """Sub-records in each record; 1: plain records."""
    ends: bool
    """Whether every shard ends; otherwise the last ones stay open and silent."""
    disorder_ms: int
    wrong_clock: bool
    """Whether some records of one shard have event times of a wrong clock (W12)."""
    inconsistent_listings: bool = False
    """Whether listings lack shards for a while: children after a reshard, ended parents, any other."""
    extreme_times: bool = False
    """Whether some event times are at the bounds of those that can be used, and beyond (W12)."""
    has_empty_reads: bool = False
    """Whether every other read of what has arrived brings nothing, far behind the tip, as the service does on sparse shards."""
    is_finite: bool = False
    """Whether no shard follows those that are listed as closed, as with a plugin that has a finite source: the job ends (S8)."""
    has_two_streams: bool = False
    """Whether the shards belong to two streams, which leave the list of streams and come back (S10)."""


@dataclass
class SimulatedShard:
    """`arrivals` (virtual seconds) and `times` (event times, ms) of its records. Listed from `opens` on, closed from `closes` on."""

    shard: Shard
    opens: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    closes: float | None = None
    children: tuple[Shard, ...] = ()
    outage: tuple[float, float] = (0.0, 0.0)
    """Reads between these moments fail or are throttled: they return after the second one."""
    unlisted: tuple[tuple[float, float], ...] = ()
    """Listings between these moments lack it."""

    @property
    def calm_from(self) -> float:
        """When nothing new happens to it any more."""
        return max([self.opens, self.outage[1], *self.arrivals, *(ends for _, ends in self.unlisted)])

    def listed(self, now: float) -> Shard | None:
        """As a listing shows it; None: it does not."""
        if now < self.opens or any(begins <= now < ends for begins, ends in self.unlisted):
            return None
        return replace(self.shard, closed=self.closes is not None and self.closes <= now)

    def arrived(self, now: float) -> int:
        return sum(arrival <= now for arrival in self.arrivals)

    @cached_property
    def usable(self) -> list[int]:
        """The indexes of the records that can be used (W12); the others are skipped."""
        return [index for index, time in enumerate(self.times) if YEAR_1_MS <= time < YEAR_10000_MS]

    @cached_property
    def counted_times(self) -> dict[int, int]:
        """Event times as they count for watermarks (W12), by index."""
        return {index: self._counted_time(index) for index in self.usable}

    def usable_between(self, first: int, stop: int | None = None) -> list[int]:
        """The indexes from `first` to `stop` (excluded) of records that can be used."""
        return [index for index in self.usable if first <= index and (stop is None or index < stop)]

    def _counted_time(self, index: int) -> int:
        arrival_ms = round(self.arrivals[index] * 1000)
        return arrival_ms if self.times[index] > arrival_ms + FUTURE_LIMIT_MS else self.times[index]


class SimulatedStream:
    """Every shard of a simulated stream or two, by key."""

    def __init__(self, plan: StreamPlan) -> None:
        self._random = random.Random(plan.seed)
        self.plan = plan
        self.shards: dict[str, SimulatedShard] = {}
        self.merged: set[str] = set()
        """Shards with a merge among their ancestors."""
        self.names = ("s", "t") if plan.has_two_streams else ("s",)
        leaves = [self._add((), 0.0, self.names[root % len(self.names)]) for root in range(plan.roots)]
        for _ in range(plan.reshards):
            leaves = self._reshard(leaves)
        for leaf in leaves:
            leaf.closes = max(leaf.arrivals, default=leaf.opens) if plan.ends else None
        if plan.is_finite:
            self._close_later(leaves)
        if plan.wrong_clock:
            self._set_wrong_times()
        if plan.inconsistent_listings:
            self._set_unlisted()
        if plan.extreme_times:
            self._set_extreme_times()
        self.calm_from = max(each.calm_from for each in self.shards.values())
        if plan.is_finite:
            self.calm_from = max(self.calm_from, *(leaf.closes or 0.0 for leaf in leaves))
        self.total = sum(len(each.usable) for each in self.shards.values())

    def __getitem__(self, key: str) -> SimulatedShard:
        return self.shards[key]

    def parents(self, key: str) -> list[str]:
        shard = self.shards[key].shard
        return [f"{shard.stream}/{parent}" for parent in shard.parents]

    def of_stream(self, stream: str) -> set[str]:
        return {key for key, each in self.shards.items() if each.shard.stream == stream}

    def watermark(self, key: str, count: int) -> int | None:
        """The shard watermark after `count` records, computed independently: the largest time less the disorder, or the inherited one."""
        shard = self.shards[key]
        inherited = [self.watermark(parent, len(self.shards[parent].times)) for parent in self.parents(key)]
        known = [each for each in inherited if each is not None]
        own = [time - self.plan.disorder_ms for index, time in shard.counted_times.items() if index < count]
        return max(own + ([min(known)] if known else []), default=None)

    def _reshard(self, every_leaf: list[SimulatedShard]) -> list[SimulatedShard]:
        draw = self._random
        stream = draw.choice(every_leaf).shard.stream if len(self.names) > 1 else self.names[0]
        leaves = [leaf for leaf in every_leaf if leaf.shard.stream == stream]
        parents = draw.sample(leaves, 2) if len(leaves) > 1 and draw.random() < 0.5 else [draw.choice(leaves)]
        at = max(max([each.opens, *each.arrivals]) for each in parents) + draw.choice([0.0, 1.0])
        count = 1 if len(parents) == 2 else 2
        children = [self._add(tuple(parent.shard.shard_id for parent in parents), at, stream) for _ in range(count)]
        for parent in parents:
            parent.closes = at
            parent.children = tuple(child.shard for child in children) if draw.random() < 0.7 else ()
        if len(parents) == 2 or any(parent.shard.key in self.merged for parent in parents):
            self.merged |= {child.shard.key for child in children}
        return [leaf for leaf in every_leaf if leaf not in parents] + children

    def _add(self, parents: tuple[str, ...], opens: float, stream: str) -> SimulatedShard:
        draw, plan = self._random, self.plan
        made = SimulatedShard(Shard(stream, f"{len(self.shards):03d}", parents), opens)
        at, clock = opens, opens * 1000 * draw.choice([1, 1, 1, 20])
        pace = draw.choice([0.0, 0.1, 1.0])  # before the job started, quickly, slowly
        skew = draw.choice([1, 30, 1000, 5000])
        for _ in range(draw.choice([0, plan.records // 3, plan.records]) // plan.aggregate):
            at += pace + (draw.choice([0.0, 0.0, 5.0]) if draw.random() < 0.1 else 0.0)
            for _ in range(plan.aggregate):
                clock += draw.choice([0, skew, skew * 3])
                made.arrivals.append(at)
                made.times.append(round(clock) - draw.randint(0, plan.disorder_ms))
        began = opens + draw.uniform(0, 10)
        made.outage = (began, began + draw.choice([0.0, 0.0, 2.0, 8.0]))
        self.shards[made.shard.key] = made
        return made

    def _close_later(self, leaves: list[SimulatedShard]) -> None:
        """The last shards of a finite stream close at their last record or later: also while a job waits at their tips."""
        draw = random.Random(f"{self.plan.seed} ends")
        for leaf in leaves:
            assert leaf.closes is not None
            leaf.closes += draw.choice([0.0, 0.0, 3.0, 15.0])

    def _set_unlisted(self) -> None:
        draw = self._random
        for each in self.shards.values():
            closes = each.opens + 5 if each.closes is None else each.closes
            starts = (each.opens, closes + draw.uniform(-3, 8), draw.uniform(0, 60))
            lengths = (draw.choice([0, 3, 15]), draw.choice([0, 5, 15]), draw.choice([0, 5, 15]))
            each.unlisted = tuple((begin, begin + length) for begin, length in zip(starts, lengths, strict=True))

    def _set_extreme_times(self) -> None:
        for each in self.shards.values():
            for index in range(len(each.times)):
                if self._random.random() < 0.05:
                    each.times[index] = self._random.choice(EXTREME_TIMES)

    def _set_wrong_times(self) -> None:
        broken = self._random.choice(list(self.shards.values()))
        for index in range(len(broken.times)):
            if self._random.random() < 0.1:
                broken.times[index] = WRONG_CLOCK_MS + index
