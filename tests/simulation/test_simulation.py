"""Random schedules of a job that runs alone, on virtual time: in each of them the rules S1, S2, S5, S8, W1, W6, W8, W9, W13 and P6 hold.

A real fetcher of a job that runs alone, in a simulated process, with real checkpoints. The seed decides everything:

    SEED=123 make simulation                      runs one schedule again, exactly
    SCHEDULES=100000 make simulation              runs many (`make nightly`); FIRST=... is the first seed
"""

import os

import pytest

from random_inputs import inputs
from simulation.job import run
from simulation.many_schedules import failures_of

QUICK, MANY = inputs(200, 50), 2_000


@pytest.mark.random
def test_every_rule_holds_in_every_schedule():
    assert failures_of(run, range(QUICK), "SEED") == []


@pytest.mark.simulation
@pytest.mark.timeout(0)
def test_every_rule_holds_in_many_schedules():
    if "SEED" in os.environ:
        run(int(os.environ["SEED"]))
        return
    first, count = int(os.environ.get("FIRST", "200")), int(os.environ.get("SCHEDULES", MANY))
    failures = failures_of(run, range(first, first + count), "SEED")

    assert not failures, "\n".join(
        ["schedules that break a rule; run one again by `SEED=... make simulation`:", *failures]
    )


def test_a_seed_gives_the_same_schedule_and_the_same_run():
    assert [run(seed).trace for seed in range(5)] == [run(seed).trace for seed in range(5)]


@pytest.mark.slow
def test_the_schedules_have_late_records():  # W13: otherwise the comparison with the metric shows nothing
    assert sum(run(seed).late for seed in range(60)) > 20
