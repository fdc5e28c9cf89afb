"""Plan: the parameters of one soak run, all decided by its seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from recordpublisher.local import FaultRule
from recordpublisher.local.faults import FRAMES, FaultKind

POLLING, EFO = "POLLING", "EFO"
OF_QUEUES = (FaultKind.REDELIVER,)
"""Kinds that these plans leave out: their jobs read shards."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """One start of the job: its publisher, how long it runs, and how it ends."""

    publisher: str
    seconds: float
    crashes: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The stream, the faults and the runs of the job."""

    seed: int
    shards: int
    records: int
    seconds: float
    """How long records are produced."""
    reshards: tuple[float, ...]
    """When the stream is resharded, in seconds."""
    rules: tuple[FaultRule, ...]
    job_runs: tuple[JobRun, ...]
    initial_position: str
    interval_ms: int
    discovery_ms: int
    stalls: tuple[tuple[float, float], ...]
    """When the sink stops taking records, and for how long, in seconds."""
    by_arn: bool
    consumer_delay_ms: int
    payload: int
    """The largest size of a record, bytes."""
    queue_records: int
    """How many records a shard's queue may have: a low limit causes back-pressure."""
    switches: tuple[float, ...]
    """When the record distribution is switched to AUTO, and back, in seconds. Then the producer aggregates, as the KPL does."""


def plan_of(seed: int, publisher: str | None = None) -> Plan:
    """The plan of a seed. By default even seeds poll and odd ones use fan-out; some change the publisher between two runs (P5)."""
    rng = Random(seed)
    seconds = rng.choice([15.0, 30.0, 60.0, 120.0])
    first = publisher or (EFO if seed % 2 else POLLING)
    changes = rng.random() < 0.15 and publisher is None
    job_runs = [
        JobRun(
            publisher=(POLLING if first == EFO else EFO) if changes and number % 2 else first,
            seconds=rng.uniform(0, seconds * 0.7),
            crashes=rng.random() < 0.5,
        )
        for number in range(rng.choice([1, 2, 3]))
    ]
    return Plan(
        seed=seed,
        shards=rng.randint(1, 3),
        records=rng.randint(100, 500),
        seconds=seconds,
        reshards=_reshards(rng, seconds),
        rules=_with_empty_reads(seed, _with_or_without_missing_shards(Random(seed + 3), _rules(rng, first))),
        job_runs=tuple(job_runs),
        initial_position=rng.choice(["TRIM_HORIZON", "TRIM_HORIZON", "LATEST"]),
        interval_ms=rng.choice([0, 200, 1_000]),
        discovery_ms=rng.choice([2_000, 10_000, -1]),
        stalls=_stalls(rng, seconds),
        by_arn=rng.random() < 0.5,
        consumer_delay_ms=rng.choice([100, 3_000]),
        payload=rng.choice([40, 40, 2_000, 40_000]),
        queue_records=rng.choice([1, 20, 50_000]),
        switches=_switches(Random(seed + 2), seconds),
    )


def _rules(rng: Random, publisher: str) -> tuple[FaultRule, ...]:
    """Every kind at some rate, a few of them often; without those that are drawn by themselves."""
    common, rare = (0.15, 0.05) if publisher == EFO else (0.06, 0.015)
    kinds = [kind for kind in FaultKind if kind not in (FaultKind.INCOMPLETE, FaultKind.EMPTY, *OF_QUEUES)]
    often = set(rng.sample(kinds, 4))
    rules = []
    for kind in kinds:
        rate = common if kind in often else rare
        if kind.targets == FRAMES:
            rate = rate * 1.5
        if kind in (FaultKind.STALE, FaultKind.MISSING, FaultKind.DELETING):
            rate = 0.5 if kind in often else 0.2
        seconds = rng.choice([2.0, 8.0, 45.0]) if kind in (FaultKind.SLOW, FaultKind.LATE) else None
        rules.append(FaultRule(kind, None, rate, seconds=seconds))
    rng.shuffle(rules)
    return tuple(rules)


def _with_or_without_missing_shards(rng: Random, rules: tuple[FaultRule, ...]) -> tuple[FaultRule, ...]:
    """In half of the plans listings lack shards. Then no shard that exists is not found: one that is neither listed nor found has expired.

    Drawn by itself, so that the other parameters of a seed stay what they are.
    """
    if rng.random() < 0.5:
        return rules
    kept = tuple(rule for rule in rules if rule.kind is not FaultKind.MISSING)
    return (*kept, FaultRule(FaultKind.INCOMPLETE, None, rng.choice([0.1, 0.3, 0.6])))


def _with_empty_reads(seed: int, rules: tuple[FaultRule, ...]) -> tuple[FaultRule, ...]:
    """In a quarter of the plans that poll, reads far behind the tip return nothing. A subscription makes no such read."""
    return (*rules, FaultRule(FaultKind.EMPTY, None, 0.1)) if seed % 8 == 6 else rules


def _reshards(rng: Random, seconds: float) -> tuple[float, ...]:
    """Some single ones, some soon after another: children are split or merged before every worker has found them."""
    times: list[float] = []
    for _ in range(rng.choice([0, 1, 2, 3, 5])):
        follows = bool(times) and rng.random() < 0.5
        times.append(times[-1] + rng.uniform(0.5, 4) if follows else rng.uniform(0, seconds))
    return tuple(sorted(times))


def _switches(rng: Random, seconds: float) -> tuple[float, ...]:
    """Drawn by itself, so that the other parameters of a seed stay what they are."""
    if rng.random() < 0.8:
        return ()
    return tuple(sorted(rng.uniform(0, seconds) for _ in range(rng.choice([1, 2, 3, 5]))))


def _stalls(rng: Random, seconds: float) -> tuple[tuple[float, float], ...]:
    if rng.random() < 0.7:
        return ()
    return ((rng.uniform(0, seconds), rng.choice([10.0, 45.0, 90.0, 400.0])),)
