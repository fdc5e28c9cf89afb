"""In the same simulation the watermark rules of Flink's connector break rules that ours keep: the simulation finds such defects."""

from collections import Counter

import pytest

from simulation.flink_job import run_flink
from simulation.job import Job
from simulation.schedule import LARGE_BUDGET, JobRun, Schedule, random_schedule
from simulation.simulated_stream import StreamPlan

SEEDS = range(60)
FAULTLESS_RUN = JobRun(
    parallelism=3,
    seconds=0.0,
    restore_age=0.0,
    crashes=False,
    lookahead=0,
    idle_interval=3_000,
    max_lag=None,
    budget=LARGE_BUDGET,
    sink_cost=0.0,
    continuations=True,
    loss=0.0,
    max_delay=0.02,
    keeps_tracker=False,
    faults=(),
)
STREAM = StreamPlan(
    seed=136779594, roots=3, records=40, reshards=0, aggregate=1, ends=False, disorder_ms=0, wrong_clock=False
)
OUTAGE_SCHEDULE = Schedule(0, STREAM, (FAULTLESS_RUN,), "IN_PROCESS")
"""One shard's reads fail for longer than the idle interval. The others are read on, and then its records are too far ahead."""


def broken_by_flink(after_29099):
    return Counter(rule for seed in SEEDS for rule in run_flink(random_schedule(seed), after_29099))


@pytest.fixture(scope="module")
def before():
    return broken_by_flink(after_29099=False)


@pytest.fixture(scope="module")
def after():
    return broken_by_flink(after_29099=True)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["W6", "W8", "W9", "W13"])
def test_flink_before_29099_breaks(rule, before):
    assert before[rule]


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["W6", "W8", "W9", "W13"])
def test_flink_after_29099_still_breaks(rule, after):
    assert after[rule]


def test_29099_fixed_a_shard_that_was_never_read_again():  # W7
    assert "W9" in run_flink(OUTAGE_SCHEDULE, refreshes_while_idle=False)
    assert "W9" not in run_flink(OUTAGE_SCHEDULE, refreshes_while_idle=True)
    assert Job(OUTAGE_SCHEDULE).run().is_complete, "our rules have no such case"
