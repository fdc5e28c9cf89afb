"""Schedule: everything that one seed decides: the stream, the runs of the job, and the faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from recordpublisher.fetcher.settings import BudgetLimits

from .simulated_stream import SimulatedStream, StreamPlan

LARGE_BUDGET, SMALL_BUDGET = BudgetLimits(1 << 27, 1 << 24, 50_000), BudgetLimits(2_000, 1_500, 5)
FAULT_SECONDS = 25.0
"""Faults begin within this time after the start of a run."""


@dataclass(frozen=True)
class Fault:
    """`kind`: suspend, starve, stall (a slow write), crash (and restart), leave (and start again), unlist.

    A stream that is unlisted leaves the list of streams for these seconds; -1: for ever.
    """

    kind: str
    at: float
    """Seconds after the run's start."""
    seconds: float
    stream: str = ""

    @property
    def may_cause_late_records(self) -> bool:
        """Whether records may be late because of it (W13)."""
        return self.kind != "stall"


@dataclass(frozen=True)
class JobRun:
    """One start of the job, and how it ends."""

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
    faults: tuple[Fault, ...]
    sync_interval: int = 1_000

    @property
    def is_faultless(self) -> bool:
        """Whether nothing disturbs the process: then no record may be late that was not late in its shard (W13)."""
        is_calm = not any(each.may_cause_late_records for each in self.faults)
        return is_calm and self.idle_interval < 0 and self.max_lag is None

    @property
    def faults_end(self) -> float:
        """Seconds after the run's start."""
        return max([FAULT_SECONDS, *(each.at + each.seconds for each in self.faults)])


@dataclass(frozen=True)
class Schedule:
    """The stream, and the runs."""

    seed: int
    stream: StreamPlan
    runs: tuple[JobRun, ...]


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
    runs = [_random_run(draw) for _ in range(draw.choice([1, 1, 1, 2, 3]))]
    if not stream.ends and runs[-1].lookahead is not None and runs[-1].idle_interval < 0:
        # an open shard that stays silent holds the others on purpose (W2)
        runs[-1] = replace(runs[-1], idle_interval=3_000)
    of_streams = random.Random(f"{seed} streams")
    if of_streams.random() < 0.4:
        stream = replace(stream, roots=max(stream.roots, 2), has_two_streams=True)
        runs = [_with_changing_streams(each, of_streams, each is runs[-1]) for each in runs]
    of_ends = random.Random(f"{seed} finite")
    if stream.ends and not stream.has_two_streams and of_ends.random() < 0.6:
        # A source that lists its last shard as closed before it lists another one ends its job early, so its listings are complete.
        stream = replace(stream, is_finite=True, inconsistent_listings=False)
        if len(runs) == 1 and of_ends.random() < 0.7:
            runs = [_with_faults_at_the_end(runs[0], of_ends, SimulatedStream(stream).calm_from)]
    return Schedule(seed, stream, tuple(runs))


def _with_faults_at_the_end(job_run: JobRun, draw: random.Random, end: float) -> JobRun:
    """Faults at about the time at which the last shard closes, in seconds after the start, and when the run ends."""
    kinds = ["crash", "crash", "leave", "suspend", "starve", "stall"]
    faults = [
        Fault(draw.choice(kinds), max(0.0, end + draw.uniform(-4, 6)), draw.choice([0.5, 4.0]))
        for _ in range(draw.randint(1, 3))
    ]
    return replace(job_run, faults=(*job_run.faults, *faults))


def _with_changing_streams(job_run: JobRun, draw: random.Random, is_last: bool) -> JobRun:
    """Streams leave the list and come back; in the last run one may leave for ever."""
    absences = [
        Fault("unlist", draw.uniform(0, FAULT_SECONDS), draw.choice([0.5, 3.0, 8.0, 20.0]), stream=draw.choice("st"))
        for _ in range(draw.randint(0, 3))
    ]
    if is_last and draw.random() < 0.3:
        absences.append(Fault("unlist", draw.uniform(0, FAULT_SECONDS), -1, stream=draw.choice("st")))
    return replace(job_run, faults=(*job_run.faults, *absences))


def _random_run(draw: random.Random) -> JobRun:
    lookahead = draw.choice([None, 0, 100, 10_000, 10_000])
    has_faults = draw.random() < 0.7
    kinds = ["suspend", "suspend", "starve", "stall", "crash", "leave"]
    return JobRun(
        seconds=draw.uniform(0, 40),
        restore_age=draw.choice([0.0, 2.0, 10.0]),
        crashes=draw.random() < 0.5,
        lookahead=lookahead,
        idle_interval=draw.choice([-1, 3_000]),
        max_lag=draw.choice([None, None, None, 20_000]),
        budget=draw.choice([SMALL_BUDGET, LARGE_BUDGET]),
        sink_cost=draw.choice([0.0, 0.0, 0.05]),
        continuations=draw.random() < 0.5,
        faults=tuple(_random_fault(draw, kinds) for _ in range(draw.randint(0, 4) * has_faults)),
    )


def _random_fault(draw: random.Random, kinds: list[str]) -> Fault:
    at = draw.choice([0.0, draw.uniform(0, 2.0), draw.uniform(0, FAULT_SECONDS)])  # also before the first global value
    return Fault(draw.choice(kinds), at, draw.choice([0.5, 4.0, 15.0, 40.0]))
