"""A schedule: everything that one seed decides, the world, the lives of the job, and what disturbs them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from recordpublisher.fetcher.pipeline.memory_budget import BudgetLimits

from .world import WorldPlan

ROOMY, TIGHT = BudgetLimits(1 << 27, 1 << 24, 50_000), BudgetLimits(2_000, 1_500, 5)
STORM_SECONDS = 25.0
"""Disturbances begin within so many seconds of a life."""


@dataclass(frozen=True)
class Disturbance:
    """`kind`: suspend, starve, stall (a slow write), crash (and start again), leave (and come back), die (for ever), tracker-sleeps,
    tracker-restarts."""

    kind: str
    at: float
    """Seconds after the life's start."""
    seconds: float
    subtask: int = 0

    @property
    def leaves_somebody_out(self) -> bool:
        """Whether records may be late because of it (W13)."""
        return self.kind != "stall"


@dataclass(frozen=True)
class Life:
    """One start of the job until it is ended."""

    parallelism: int
    seconds: float
    restore_age: float
    """The next life restores what was stored so long before this one ended."""
    crashes: bool
    lookahead: int | None
    idle_interval: int
    max_lag: int | None
    budget: BudgetLimits
    sink_cost: float
    continuations: bool
    loss: float
    """How many messages between subtasks and tracker are lost, while the storm lasts."""
    slowest: float
    """How long a message may be under way, seconds."""
    keeps_tracker: bool
    """Whether the tracker of the life before goes on."""
    disturbances: tuple[Disturbance, ...]

    @property
    def is_undisturbed(self) -> bool:
        """Whether nobody is left out and no message lost: then no record may be late that was not late in its shard (W13)."""
        is_calm = not any(each.leaves_somebody_out for each in self.disturbances) and not self.loss and self.slowest < 1
        return is_calm and self.idle_interval < 0 and self.max_lag is None and not self.keeps_tracker

    @property
    def storm_ends(self) -> float:
        """Seconds after the life's start."""
        return max([STORM_SECONDS, *(each.at + each.seconds for each in self.disturbances)])


@dataclass(frozen=True)
class Schedule:
    """All of it; `tracker` is IN_PROCESS or REMOTE (messages over a network)."""

    seed: int
    world: WorldPlan
    lives: tuple[Life, ...]
    tracker: str


def drawn(seed: int) -> Schedule:
    """The schedule of a seed."""
    draw = random.Random(seed)
    world = WorldPlan(
        seed=draw.randrange(2**32),
        roots=draw.randint(1, 4),
        records=draw.choice([5, 20, 40]),
        reshards=draw.choice([0, 0, 1, 2, 3]),
        aggregate=draw.choice([1, 1, 3]),
        ends=draw.random() < 0.5,
        disorder_ms=draw.choice([0, 0, 5_000]),
        absurd=draw.random() < 0.2,
    )
    tracker = draw.choice(["IN_PROCESS", "REMOTE", "REMOTE"])
    lives = [_life(draw, tracker) for _ in range(draw.choice([1, 1, 1, 2, 3]))]
    if not world.ends and lives[-1].lookahead is not None and lives[-1].idle_interval < 0:
        # an open shard that stays silent holds the others on purpose (W2)
        lives[-1] = replace(lives[-1], idle_interval=3_000)
    if tracker == "REMOTE" and lives[-1].parallelism > 1 and draw.random() < 0.2:
        dies = Disturbance("die", draw.uniform(0, STORM_SECONDS), 0.0, draw.randrange(lives[-1].parallelism))
        others = tuple(each for each in lives[-1].disturbances if each.subtask != dies.subtask)
        lives[-1] = replace(lives[-1], disturbances=(*others, dies))
    return Schedule(seed, world, tuple(lives), tracker)


def _life(draw: random.Random, tracker: str) -> Life:
    parallelism = draw.randint(1, 3)
    lookahead = draw.choice([None, 0, 100, 10_000, 10_000])
    is_rough = draw.random() < 0.7
    kinds = ["suspend", "suspend", "starve", "stall", "crash", "leave"]
    kinds += ["tracker-sleeps", "tracker-restarts"] if tracker == "REMOTE" else []
    return Life(
        parallelism=parallelism,
        seconds=draw.uniform(0, 40),
        restore_age=draw.choice([0.0, 2.0, 10.0]),
        crashes=draw.random() < 0.5,
        lookahead=lookahead,
        idle_interval=draw.choice([-1, 3_000]),
        max_lag=draw.choice([None, None, None, 20_000]),
        budget=draw.choice([TIGHT, ROOMY]),
        sink_cost=draw.choice([0.0, 0.0, 0.05]),
        continuations=draw.random() < 0.5,
        loss=draw.choice([0.0, 0.05, 0.3]) if is_rough else 0.0,
        slowest=draw.choice([0.02, 0.2, 3.0]) if is_rough else 0.02,
        keeps_tracker=draw.random() < 0.4,
        disturbances=tuple(_disturbance(draw, kinds, parallelism) for _ in range(draw.randint(0, 4) * is_rough)),
    )


def _disturbance(draw: random.Random, kinds: list[str], parallelism: int) -> Disturbance:
    at = draw.choice([0.0, draw.uniform(0, STORM_SECONDS)])
    return Disturbance(draw.choice(kinds), at, draw.choice([0.5, 4.0, 15.0, 40.0]), draw.randrange(parallelism))
