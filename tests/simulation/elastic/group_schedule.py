"""GroupSchedule: everything that one seed decides about a simulated group."""

from __future__ import annotations

import random
from dataclasses import dataclass

from recordpublisher.fetcher.leases.group_store import LEASE_TABLE, PARTS_PREFIX, WORKERS

from .shared_store import MAX_LAG_SECONDS, Faults
from .simulated_shards import LOADS
from .traps import Trap

KINDS = ["join", "leave", "leave-all", "crash", "cut-off", "suspend", "sleep", "reshard", "pause"]
"""`suspend` stops a process, `cut-off` loses its calls to the store; `sleep` does both, as when a laptop sleeps and wakes offline."""
GRACEFUL = [5, 3, 1, 0, 0, 0, 0, 5, 4]
STYLES = {
    "mixed": [5, 3, 1, 2, 2, 2, 1, 5, 2],
    "outages": [2, 1, 0, 1, 5, 3, 5, 1, 1],
    "handovers": [6, 6, 1, 1, 1, 1, 0, 1, 0],
    "reshards": [3, 2, 1, 2, 1, 1, 1, 9, 0],
}
"""How often each kind happens."""
TRAPPED_NAMES = [WORKERS, PARTS_PREFIX, LEASE_TABLE, f"delete {WORKERS}", f"delete {PARTS_PREFIX}"]
TRAPS = ["suspend", "late request", "late answer", "lost answer", "kill", "cut-off"]


@dataclass(frozen=True)
class GroupEvent:
    """`kind` is one of KINDS, or of those that only directed schedules have; `choice` decides which process or shard it happens to."""

    at: float
    kind: str
    choice: float
    seconds: float


@dataclass(frozen=True)
class GroupSchedule:
    """`is_graceful`: nobody crashes, is suspended or cut off. Then nothing may be written twice (E5)."""

    seed: int
    is_graceful: bool
    workers: int
    roots: int
    records: int
    disturbed_seconds: float
    faults: Faults
    timeout: float
    shards_per_part: int
    lookahead: int | None
    is_transactional: bool
    """Whether the sink keeps the positions with its rows."""
    clock: str | None
    """Of which kind the clocks of all processes are: see SuspendableClock; None: chance decides for each."""
    events: tuple[GroupEvent, ...]
    traffic_changes: tuple[float, ...]
    """When a shard gets another load."""
    loads: tuple[float, ...] = LOADS
    """What the load of a shard may be, bytes a second."""
    traps: tuple[Trap, ...] = ()
    sink_traps: tuple[Trap, ...] = ()
    """Those of calls to the entries of the sink."""
    flush_seconds: float | None = None
    """How long flushes of the sink take, at most; None: short, mostly."""
    seals: int | None = None
    """How many workers are sealed before the disturbances end."""
    quiet: tuple[float, float] | None = None
    """Between these times no shard moves."""
    names_children: bool = True
    """Whether the end of a shard names its children; else they are only listed."""
    is_latest: bool = False
    """Whether the group begins at LATEST: each process that starts pins its own time for it."""
    has_old_listings: bool = False
    """Whether listings lack one generation of shards for seconds."""


def random_schedule(seed: int) -> GroupSchedule:
    """The schedule of a seed."""
    draw = random.Random(seed)
    is_graceful = draw.random() < 0.35
    end = draw.choice([60.0, 120.0, 240.0])
    style = draw.choice(list(STYLES))
    usual = draw.choice([0.1, 0.1, 1.0])
    faults = (
        Faults(0.03, 0.0, usual, 3.0, 3.0) if is_graceful else Faults(draw.choice([0.06, 0.06, 0.2]), 0.0012, usual)
    )
    weights = GRACEFUL if is_graceful else STYLES[style]
    faults.lag = random.Random(f"{seed} lag").choice([0.0, 1.0, 1.0, MAX_LAG_SECONDS])
    pace = draw.choice([14, 7])
    events, at = [], 0.0
    while (at := at + draw.expovariate(1 / pace)) < end:
        kind = draw.choices(KINDS, weights)[0]
        events.append(GroupEvent(at, kind, draw.random(), draw.choice([3, 15, 30, 60, 90]) * draw.random()))
    return GroupSchedule(
        seed,
        is_graceful,
        workers=draw.randint(1, 4),
        roots=draw.randint(2, 7),
        records=draw.choice([10, round(end / 2)]),
        disturbed_seconds=end,
        faults=faults,
        timeout=draw.choice([2.0, 2.0, 5.0, 9.0]),
        shards_per_part=draw.choice([1, 2, 16]),
        lookahead=random.Random(f"{seed} lookahead").choice([None, None, 60, 300]),
        is_transactional=random.Random(f"{seed} sink").random() < 0.4,
        clock=None,
        events=tuple(events),
        traps=() if is_graceful else _traps(random.Random(f"{seed} traps"), end),
        traffic_changes=_times(random.Random(f"{seed} traffic"), end, 30.0),
        names_children=random.Random(f"{seed} children").random() < 0.7,
        has_old_listings=random.Random(f"{seed} listings").random() < 0.4,
    )


def _times(draw: random.Random, end: float, pause: float) -> tuple[float, ...]:
    times: list[float] = []
    at = 0.0
    while (at := at + draw.expovariate(1 / pause)) < end:
        times.append(at)
    return tuple(times)


def _traps(draw: random.Random, end: float) -> tuple[Trap, ...]:
    """In half of the schedules something happens to a few single calls: chance alone hits those that are made once too rarely."""
    if draw.random() < 0.5:
        return ()
    return tuple(_trap(draw, end) for _ in range(draw.randint(1, 4)))


def _trap(draw: random.Random, end: float) -> Trap:
    """Early, more often than not: what is done once is done at the start."""
    process, prefix, what = f"w{draw.randrange(4)}", draw.choice(TRAPPED_NAMES), draw.choice(TRAPS)
    after, seconds = end * draw.random() ** 2, draw.choice([5, 25, 40]) * draw.random()
    return Trap(process, prefix, what, after, seconds, draw.choice([1, 1, 3]), until=end)
