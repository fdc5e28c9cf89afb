"""Fast time counts sleep and work, and not the time in which the machine ran something else."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from servers.fast_time import LONGEST_SECONDS, SPEED, FastClock, FastLoop, run_fast


def test_timers_run_fifty_times_as_fast():
    async def main():
        began, real = FastClock().monotonic(), time.monotonic()
        await asyncio.sleep(10)
        return FastClock().monotonic() - began, time.monotonic() - real

    passed, real = run_fast(main())

    assert passed > 9.99
    assert real >= 10 / SPEED * 0.9


def test_time_in_which_nothing_runs_is_not_counted():
    async def main():
        began = FastClock().monotonic()
        time.sleep(0.2)  # noqa: ASYNC251 - nothing else runs meanwhile
        return FastClock().monotonic() - began

    assert 0 < run_fast(main()) <= LONGEST_SECONDS * SPEED * 1.001


@pytest.mark.parametrize(("requested", "counted"), [(1.0, 1 / SPEED + LONGEST_SECONDS), (None, LONGEST_SECONDS)])
def test_a_sleep_that_lasts_too_long_counts_as_long_as_requested(monkeypatch, requested, counted):
    moments = iter([100.0, 100.0, 100.0, 103.0, 103.0])
    loop = FastLoop()
    loop.call_soon_threadsafe(lambda: None)  # something is ready
    with monkeypatch.context() as patched:
        patched.setattr("servers.fast_time.time", SimpleNamespace(monotonic=lambda: next(moments)))
        loop._fast.count(0.0)
        before = loop.time()
        loop._fast.select(requested)
        after = loop.time()
    loop.close()

    assert (after - before) / SPEED == pytest.approx(counted)
