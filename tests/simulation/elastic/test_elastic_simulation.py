"""Random schedules of a whole group of workers on virtual time: in each of them the rules E1 to E9 and E12 hold.

GROUP_SCHEDULES=5000 GROUP_FIRST=0 pytest -m simulation tests/simulation/elastic    runs many; GROUP_SEED=123 runs one again
"""

import os

import pytest

from ..many_schedules import failures_of
from .directed_schedules import DIRECTED
from .simulated_group import SimulatedGroup, run

QUICK, MANY = 4, 20


def test_every_rule_holds_in_every_schedule():
    assert failures_of(run, range(QUICK), "GROUP_SEED") == []


@pytest.mark.simulation
@pytest.mark.parametrize("situation", DIRECTED)
def test_every_rule_holds_in_each_situation(situation):
    SimulatedGroup(DIRECTED[situation](0)).run()


@pytest.mark.simulation
@pytest.mark.timeout(0)
def test_every_rule_holds_in_many_schedules():
    if "GROUP_SEED" in os.environ:
        run(int(os.environ["GROUP_SEED"]))
        return
    first, count = int(os.environ.get("GROUP_FIRST", QUICK)), int(os.environ.get("GROUP_SCHEDULES", MANY))
    failures = failures_of(run, range(first, first + count), "GROUP_SEED")

    assert not failures, "\n".join(["schedules that break a rule:", *failures])


@pytest.mark.simulation
def test_a_seed_gives_the_same_schedule_and_the_same_run():
    assert run(3).counts == run(3).counts
