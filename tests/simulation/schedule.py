"""Schedule: everything that one seed decides: the stream, the runs of the job, and the faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import pairwise

from recordpublisher.fetcher.pipeline.memory_budget import BudgetLimits

from .simulated_stream import StreamPlan

LARGE_BUDGET, SMALL_BUDGET = BudgetLimits(1 << 27, 1 << 24, 50_000), BudgetLimits(2_000, 1_500, 5)
FAULT_SECONDS = 25.0
"""Faults begin within this time after the start of a run."""


@dataclass(frozen=True)
class Fault:
    """`kind`: suspend, starve, stall (a slow write), crash (and restart), leave (and join again), kill (without a restart),
    suspend-tracker, restart-tracker, unlist (a stream leaves the list of streams for these seconds; -1: for ever)."""

    kind: str
    at: float
    """Seconds after the run's start."""
    seconds: float
    subtask: int = 0
    stream: str = ""

    @property
    def may_cause_late_records(self) -> bool:
        """Whether records may be late because of it (W13)."""
        return self.kind != "stall"


@dataclass(frozen=True)
class JobRun:
    """One start of the job, and how it ends."""

    parallelism: int
    seconds: float
    restore_age: float
    """How old the checkpoints are that the next run restores after a crash, seconds."""
    crashes: bool
    lookahead: int | None
    idle_interval: int
    max_lag: int | None
    budget: BudgetLimits
    sink_cost: float
    continuations: bool
    loss: float
    """The share of messages between subtasks and tracker that is lost, until the faults end."""
    max_delay: float
    """The longest delay of a message, seconds."""
    keeps_tracker: bool
    """Whether it uses the tracker of the previous run."""
    faults: tuple[Fault, ...]
    vanishing: frozenset[int] = frozenset()
    """The subtasks whose machines vanish at a crash of the job: their connections to the tracker stay open."""

    @property
    def is_faultless(self) -> bool:
        """Whether no subtask is excluded and no message lost: then no record may be late that was not late in its shard (W13)."""
        is_calm = not any(each.may_cause_late_records for each in self.faults) and not self.loss and self.max_delay < 1
        return is_calm and self.idle_interval < 0 and self.max_lag is None

    @property
    def faults_end(self) -> float:
        """Seconds after the run's start."""
        return max([FAULT_SECONDS, *(each.at + each.seconds for each in self.faults)])


@dataclass(frozen=True)
class Schedule:
    """The stream, the runs, and the kind of tracker: IN_PROCESS, or REMOTE (messages over a network)."""

    seed: int
    stream: StreamPlan
    runs: tuple[JobRun, ...]
    tracker: str


def random_schedule(seed: int) -> Schedule:
    """The schedule of a seed."""
    draw = random.Random(seed)
    stream = StreamPlan(
        seed=draw.randrange(2**32),
        roots=draw.randint(1, 4),
        records=draw.choice([5, 20, 40]),
        reshards=draw.choice([0, 0, 1, 2, 3]),
        aggregate=draw.choice([1, 1, 3]),
        ends=draw.random() < 0.5,
        disorder_ms=draw.choice([0, 0, 5_000]),
        wrong_clock=draw.random() < 0.2,
        inconsistent_listings=random.Random(~seed).random() < 0.4,
        extreme_times=random.Random(f"{seed} extreme times").random() < 0.3,
        has_empty_reads=random.Random(f"{seed} empty reads").random() < 0.3,
    )
    tracker = draw.choice(["IN_PROCESS", "REMOTE", "REMOTE"])
    runs = [_random_run(draw, tracker) for _ in range(draw.choice([1, 1, 1, 2, 3]))]
    if not stream.ends and runs[-1].lookahead is not None and runs[-1].idle_interval < 0:
        # an open shard that stays silent holds the others on purpose (W2)
        runs[-1] = replace(runs[-1], idle_interval=3_000)
    of_streams = random.Random(f"{seed} streams")
    if of_streams.random() < 0.4:
        stream = replace(stream, roots=max(stream.roots, 2), has_two_streams=True)
        runs = [_with_changing_streams(each, of_streams, each is runs[-1]) for each in runs]
    if tracker == "REMOTE":
        _add_vanishing(runs, random.Random(~seed))
    if tracker == "REMOTE" and runs[-1].parallelism > 1 and draw.random() < 0.2:
        killed = Fault("kill", draw.uniform(0, FAULT_SECONDS), 0.0, draw.randrange(runs[-1].parallelism))
        others = tuple(each for each in runs[-1].faults if each.subtask != killed.subtask)
        runs[-1] = replace(runs[-1], faults=(*others, killed))
    return Schedule(seed, stream, tuple(runs), tracker)


def _with_changing_streams(job_run: JobRun, draw: random.Random, is_last: bool) -> JobRun:
    """Streams leave the list and come back, maybe before all subtasks have seen it; in the last run one may leave for ever."""
    absences = [
        Fault("unlist", draw.uniform(0, FAULT_SECONDS), draw.choice([0.5, 3.0, 8.0, 20.0]), stream=draw.choice("st"))
        for _ in range(draw.randint(0, 3))
    ]
    if is_last and draw.random() < 0.3:
        absences.append(Fault("unlist", draw.uniform(0, FAULT_SECONDS), -1, stream=draw.choice("st")))
    return replace(job_run, faults=(*job_run.faults, *absences))


def _add_vanishing(runs: list[JobRun], draw: random.Random) -> None:
    """Some crashes of the job are those of machines, and it restarts from an older checkpoint before the tracker has noticed."""
    for index, (before, after) in enumerate(pairwise(runs)):
        if draw.random() < 0.6:
            vanishing = frozenset(each for each in range(before.parallelism) if draw.random() < 0.5)
            runs[index] = replace(before, crashes=True, restore_age=draw.choice([2.0, 10.0, 10.0]), vanishing=vanishing)
            runs[index + 1] = replace(after, keeps_tracker=True)


def _random_run(draw: random.Random, tracker: str) -> JobRun:
    parallelism = draw.randint(1, 3)
    lookahead = draw.choice([None, 0, 100, 10_000, 10_000])
    has_faults = draw.random() < 0.7
    kinds = ["suspend", "suspend", "starve", "stall", "crash", "leave"]
    kinds += ["suspend-tracker", "restart-tracker"] if tracker == "REMOTE" else []
    return JobRun(
        parallelism=parallelism,
        seconds=draw.uniform(0, 40),
        restore_age=draw.choice([0.0, 2.0, 10.0]),
        crashes=draw.random() < 0.5,
        lookahead=lookahead,
        idle_interval=draw.choice([-1, 3_000]),
        max_lag=draw.choice([None, None, None, 20_000]),
        budget=draw.choice([SMALL_BUDGET, LARGE_BUDGET]),
        sink_cost=draw.choice([0.0, 0.0, 0.05]),
        continuations=draw.random() < 0.5,
        loss=draw.choice([0.0, 0.05, 0.3]) if has_faults else 0.0,
        max_delay=draw.choice([0.02, 0.2, 3.0]) if has_faults else 0.02,
        keeps_tracker=draw.random() < 0.4,
        faults=tuple(_random_fault(draw, kinds, parallelism) for _ in range(draw.randint(0, 4) * has_faults)),
    )


def _random_fault(draw: random.Random, kinds: list[str], parallelism: int) -> Fault:
    at = draw.choice([0.0, draw.uniform(0, 2.0), draw.uniform(0, FAULT_SECONDS)])  # also before the first global value
    return Fault(draw.choice(kinds), at, draw.choice([0.5, 4.0, 15.0, 40.0]), draw.randrange(parallelism))
