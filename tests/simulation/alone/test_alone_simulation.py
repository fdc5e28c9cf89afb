"""Random schedules of a job that runs alone, or in a group, over the same documents: no record is lost in any.

ALONE_SCHEDULES=2000 ALONE_FIRST=0 pytest -m simulation tests/simulation/alone    runs many; ALONE_SEED=123 runs one again
"""

import os

import pytest

from .alone_schedule import failures, run

QUICK, MANY = 12, 200


def test_every_record_is_written_in_each_schedule():
    assert failures(range(QUICK)) == []


@pytest.mark.simulation
@pytest.mark.timeout(0)
def test_every_record_is_written_in_many_schedules():
    if "ALONE_SEED" in os.environ:
        run(int(os.environ["ALONE_SEED"]))
        return
    first, count = int(os.environ.get("ALONE_FIRST", QUICK)), int(os.environ.get("ALONE_SCHEDULES", MANY))
    assert failures(range(first, first + count)) == []
