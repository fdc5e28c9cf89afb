"""Random schedules of a job that goes over from subtasks to a group and back: no position goes back, nothing is lost (E10).

TAKEOVER_SCHEDULES=5000 pytest -m simulation tests/simulation/takeover    runs many; TAKEOVER_SEED=123 runs one again
"""

import os
from collections import Counter

import pytest

from ..many_schedules import failures_of
from .simulated_takeovers import SimulatedTakeovers

QUICK, MANY = 20, 300


def run(seed):
    """Run the schedule of a seed; returns what happened in it."""
    return SimulatedTakeovers(seed, is_graceful=seed % 3 == 0).run().counts


def test_no_position_goes_back_and_nothing_is_lost():
    counts = Counter()
    assert failures_of(lambda seed: counts.update(run(seed)), range(QUICK), "TAKEOVER_SEED") == []
    assert min(counts["to group"], counts["to subtasks"]) > QUICK / 2


@pytest.mark.simulation
@pytest.mark.timeout(0)
def test_no_position_goes_back_and_nothing_is_lost_in_many_schedules():
    if "TAKEOVER_SEED" in os.environ:
        run(int(os.environ["TAKEOVER_SEED"]))
        return
    counts, count = Counter(), int(os.environ.get("TAKEOVER_SCHEDULES", MANY))
    failures = failures_of(lambda seed: counts.update(run(seed)), range(QUICK, QUICK + count), "TAKEOVER_SEED")
    print(dict(counts))
    assert not failures, "\n".join(["schedules that break a rule:", *failures])
