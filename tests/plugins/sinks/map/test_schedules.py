"""Random schedules of one process and of a group show that `MapSink` handles records in order, at least once and without a gap."""

import os

import pytest

from recordpublisher.testing import run_virtual

from . import group_schedules, job_schedules
from random_inputs import inputs

FIRST = int(os.environ.get("FIRST", "0"))
COUNT = int(os.environ.get("MAP_SCHEDULES", inputs(600, 150)))
GROUP_COUNT = int(os.environ.get("MAP_GROUP_SCHEDULES", inputs(20, 5)))


@pytest.mark.random
@pytest.mark.parametrize(
    ("play", "count"), [(job_schedules.play, COUNT), (group_schedules.play, GROUP_COUNT)], ids=["alone", "group"]
)
def test_every_record_is_handled_in_order_and_no_position_passes_an_unhandled_one(play, count):
    for seed in range(FIRST, FIRST + count):
        try:
            run_virtual(play(seed))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
