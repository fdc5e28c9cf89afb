"""MapSink on random schedules: at least once, in order, without a gap."""

import os

import pytest

from recordpublisher.testing import run_virtual

from .schedules import play
from random_inputs import inputs

FIRST, COUNT = int(os.environ.get("FIRST", "0")), int(os.environ.get("MAP_SCHEDULES", inputs(600, 150)))


@pytest.mark.random
def test_every_record_is_handled_in_order_and_no_position_passes_an_unhandled_one():
    for seed in range(FIRST, FIRST + COUNT):
        try:
            run_virtual(play(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
