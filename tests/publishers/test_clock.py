"""SystemClock: which of the machine's clocks count its sleep."""

import sys
import time

import pytest

from recordpublisher.publishers import clock as clock_module
from recordpublisher.publishers.clock import SystemClock


@pytest.mark.skipif(sys.platform != "linux", reason="the clocks of Linux")
def test_boottime_counts_the_sleep_of_the_machine():
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    found = SystemClock().boottime()

    assert before <= found <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_the_clock_that_counts_sleep_is_asked(monkeypatch):
    asked = []
    monkeypatch.setattr(clock_module, "_BOOTTIME", 7)
    monkeypatch.setattr(time, "clock_gettime", lambda which: asked.append(which) or 123.0)

    assert (SystemClock().boottime(), asked) == (123.0, [7])


def test_without_such_a_clock_boottime_is_monotonic(monkeypatch):
    monkeypatch.setattr(clock_module, "_BOOTTIME", None)
    before = time.monotonic()
    found = SystemClock().boottime()

    assert before <= found <= time.monotonic()
