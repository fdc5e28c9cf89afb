"""Random schedules of a whole group of workers on virtual time: in each of them the rules E1 to E9 and E12 hold.

GROUP_SCHEDULES=5000 GROUP_FIRST=0 pytest -m simulation tests/simulation/elastic    runs many; GROUP_SEED=123 runs one again
"""

import os

import pytest

from .directed_schedules import DIRECTED
from .group_schedule import random_schedule
from .simulated_group import SimulatedGroup

QUICK, MANY = 4, 20
SHOWN = 10


def failures_of(seeds):
    """The first few failing seeds, each with its error."""
    failures = []
    for seed in seeds:
        try:
            SimulatedGroup(random_schedule(seed)).run()
        except Exception as error:  # any error is reported with its seed
            failures.append(f"GROUP_SEED={seed}   # {type(error).__name__} {error}")
            if len(failures) == SHOWN:
                break
    return failures


def test_every_rule_holds_in_every_schedule():
    assert failures_of(range(QUICK)) == []


@pytest.mark.simulation
@pytest.mark.parametrize("situation", DIRECTED)
def test_every_rule_holds_in_each_situation(situation):
    SimulatedGroup(DIRECTED[situation](0)).run()


@pytest.mark.simulation
@pytest.mark.timeout(0)
def test_every_rule_holds_in_many_schedules():
    if "GROUP_SEED" in os.environ:
        SimulatedGroup(random_schedule(int(os.environ["GROUP_SEED"]))).run()
        return
    first, count = int(os.environ.get("GROUP_FIRST", QUICK)), int(os.environ.get("GROUP_SCHEDULES", MANY))
    failures = failures_of(range(first, first + count))

    assert not failures, "\n".join(["schedules that break a rule:", *failures])


@pytest.mark.simulation
def test_a_seed_gives_the_same_schedule_and_the_same_run():
    assert SimulatedGroup(random_schedule(3)).run().counts == SimulatedGroup(random_schedule(3)).run().counts
