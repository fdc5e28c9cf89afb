"""SystemClock: which of the machine's clocks count its sleep."""

import asyncio
import sys
import time
from contextlib import suppress

import pytest

from recordpublisher.publishers import clock as clock_module
from recordpublisher.publishers.clock import ObservedTimeouts, SystemClock, observed_timeout
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual


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


# observed_timeout: only time in which the process was running counts (F5).


async def wait(seconds, limit=20, suspensions=(), work=()):
    """Wait `seconds` under a limit; `suspensions` and `work` are pairs of start and length. Returns the outcome and its time."""
    loop, clock = asyncio.get_running_loop(), VirtualClock()
    for at, length in suspensions:
        loop.call_later(at, loop.suspend, length)
    for at, length in work:
        loop.call_later(at, loop.work, length)
    try:
        async with observed_timeout(clock, limit):
            await asyncio.sleep(seconds)
    except TimeoutError:
        return "timed out", clock.monotonic()
    return "finished", clock.monotonic()


def test_a_wait_below_the_limit_finishes():
    assert run_virtual(wait(19.9)) == ("finished", 19.9)


def test_a_longer_wait_times_out_at_the_limit():
    assert run_virtual(wait(1_000)) == ("timed out", 20)


def test_after_a_suspension_one_more_part_passes_before_the_time_out():
    assert run_virtual(wait(23, suspensions=[(18, 600)])) == ("finished", 618)
    assert run_virtual(wait(1_000, suspensions=[(18, 600)])) == ("timed out", 618 + 5)


def test_the_parts_of_a_suspension_do_not_count_also_when_it_ends_before_the_limit():
    outcome, at = run_virtual(wait(1_000, suspensions=[(6, 13.5)]))
    assert (outcome, at) == ("timed out", 19.5 + 3 * 5)


def test_only_parts_in_which_a_starved_loop_was_running_count():
    outcome, at = run_virtual(wait(10_000, suspensions=[(n * 10, 7) for n in range(10)]))
    assert outcome == "timed out"
    assert at > 40


def test_time_in_which_this_thread_was_busy_counts():
    assert run_virtual(wait(1_000, limit=2, work=[(0.25, 3)])) == ("timed out", 3.25)


def test_work_again_and_again_does_not_stretch_the_limit():
    """The time-out comes through a loop whose every iteration takes 1.25 s."""
    outcome, at = run_virtual(wait(1_000, limit=2, work=[(n * 1.25, 1.25) for n in range(800)]))
    assert outcome == "timed out"
    assert at <= 2 + 3 * 1.25


def test_a_suspension_of_a_busy_process_does_not_count():
    outcome, at = run_virtual(wait(1_000, limit=2, work=[(0.1, 0.2)], suspensions=[(0.3, 600)]))
    assert (outcome, at) == ("timed out", 600.3 + 2)


def test_a_cancellation_is_not_turned_into_a_time_out():
    async def main():
        task = asyncio.create_task(wait(1_000))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())


def test_no_timer_is_left_after_the_block():
    async def main():
        await wait(1)
        loop = asyncio.get_running_loop()
        assert [timer for timer in loop._scheduled if not timer.cancelled()] == []

    run_virtual(main())


def test_a_time_out_raised_in_the_block_is_passed_on():
    async def main():
        with pytest.raises(TimeoutError, match="its own"):
            async with observed_timeout(VirtualClock(), 20):
                raise TimeoutError("its own")

    run_virtual(main())


async def waits_by_one_timer(starts, limit=20, before_last=None):
    """When each of the waits that begin at `starts` times out, and the most timers that there were meanwhile."""
    loop, timeouts = asyncio.get_running_loop(), ObservedTimeouts(VirtualClock(), limit)
    ended, timers = {}, []

    async def wait_from(start):
        await asyncio.sleep(start)
        if before_last is not None and start == starts[-1]:
            loop.suspend(before_last)
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as timeout:
                timeouts.begin(timeout)
                timers.append(sum(not each.cancelled() for each in loop._scheduled))
                await loop.create_future()
        ended[start] = loop.time()

    await asyncio.gather(*map(wait_from, starts))
    return ended, timers


def test_waits_of_one_timer_time_out_each_at_its_own_limit():
    ended, _ = run_virtual(waits_by_one_timer([1, 3, 4.5, 30]))

    assert ended == {1: 21, 3: 23, 4.5: 24.5, 30: 50}


def test_a_thousand_waits_have_one_timer():
    _, timers = run_virtual(waits_by_one_timer([0] * 1_000))

    assert timers == [1] * 1_000


def test_a_wait_that_began_in_a_part_that_does_not_count_times_out_with_those_before_it():
    ended, _ = run_virtual(waits_by_one_timer([0, 2], before_last=600))

    assert ended == {0: 602 + 20, 2: 602 + 20}
