"""Random schedules of a job that goes over from subtasks to a group and back: no position goes back, nothing is lost (E10).

TAKEOVER_SCHEDULES=5000 pytest -m simulation tests/simulation/takeover    runs many; TAKEOVER_SEED=123 runs one again
"""

import os
from collections import Counter

import pytest

from .simulated_takeovers import SimulatedTakeovers

QUICK, MANY = 20, 300


def failures_of(seeds):
    """The first few failing seeds, each with its error; and what happened in the others."""
    failures, counts = [], Counter()
    for seed in seeds:
        try:
            counts += SimulatedTakeovers(seed, is_graceful=seed % 3 == 0).run().counts
        except Exception as error:  # any error is reported with its seed
            failures.append(f"TAKEOVER_SEED={seed}   # {type(error).__name__} {error}")
            if len(failures) == 10:
                break
    return failures, counts


def test_no_position_goes_back_and_nothing_is_lost():
    failures, counts = failures_of(range(QUICK))
    assert failures == []
    assert min(counts["to group"], counts["to subtasks"]) > QUICK / 2


@pytest.mark.simulation
@pytest.mark.timeout(0)
def test_no_position_goes_back_and_nothing_is_lost_in_many_schedules():
    if "TAKEOVER_SEED" in os.environ:
        seed = int(os.environ["TAKEOVER_SEED"])
        SimulatedTakeovers(seed, is_graceful=seed % 3 == 0).run()
        return
    failures, counts = failures_of(range(QUICK, QUICK + int(os.environ.get("TAKEOVER_SCHEDULES", MANY))))
    print(dict(counts))
    assert not failures, "\n".join(["schedules that break a rule:", *failures])
