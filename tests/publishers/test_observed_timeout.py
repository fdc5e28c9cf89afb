"""observed_timeout: time counts only while we could have heard something (F5)."""

import asyncio

import pytest

from recordpublisher.publishers.clock import observed_timeout
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual


async def wait(seconds, limit=20, suspensions=()):
    """Wait `seconds` under a limit; (at, for how long) the process is suspended. Answers when it ended, and how."""
    loop, clock = asyncio.get_running_loop(), VirtualClock()
    for at, length in suspensions:
        loop.call_later(at, loop.suspend, length)
    try:
        async with observed_timeout(clock, limit):
            await asyncio.sleep(seconds)
    except TimeoutError:
        return "silent", clock.monotonic()
    return "heard", clock.monotonic()


def test_what_comes_in_time_is_heard():
    assert run_virtual(wait(19.9)) == ("heard", 19.9)


def test_silence_ends_the_wait_at_the_limit():
    assert run_virtual(wait(1_000)) == ("silent", 20)


def test_after_a_suspension_it_listens_once_more_before_it_judges():
    assert run_virtual(wait(23, suspensions=[(18, 600)])) == ("heard", 618)
    assert run_virtual(wait(1_000, suspensions=[(18, 600)])) == ("silent", 618 + 5)


def test_a_suspension_that_ends_just_before_the_limit_counts_as_not_heard():
    outcome, at = run_virtual(wait(1_000, suspensions=[(6, 13.5)]))
    assert (outcome, at) == ("silent", 19.5 + 3 * 5)


def test_a_starved_loop_is_judged_by_the_parts_it_could_listen_in():
    outcome, at = run_virtual(wait(10_000, suspensions=[(n * 10, 7) for n in range(10)]))
    assert outcome == "silent"
    assert at > 40


def test_a_stop_is_a_stop_and_not_silence():
    async def main():
        task = asyncio.create_task(wait(1_000))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())


def test_no_timer_is_left_behind():
    async def main():
        await wait(1)
        loop = asyncio.get_running_loop()
        assert [timer for timer in loop._scheduled if not timer.cancelled()] == []

    run_virtual(main())


def test_a_time_out_of_the_block_itself_passes():
    async def main():
        with pytest.raises(TimeoutError, match="its own"):
            async with observed_timeout(VirtualClock(), 20):
                raise TimeoutError("its own")

    run_virtual(main())
