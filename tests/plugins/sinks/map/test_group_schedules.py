"""MapSink in a group on random schedules: at least once, in order, without a gap, and no repeat where no process is lost."""

import os

import pytest

from recordpublisher.testing import run_virtual

from .group_schedules import play
from random_inputs import inputs

FIRST, COUNT = int(os.environ.get("FIRST", "0")), int(os.environ.get("MAP_GROUP_SCHEDULES", inputs(20, 5)))


@pytest.mark.random
def test_every_record_is_handled_in_order_while_processes_come_and_go():
    for seed in range(FIRST, FIRST + COUNT):
        try:
            run_virtual(play(seed))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
