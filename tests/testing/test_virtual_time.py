"""The virtual loop that other tests use."""

import asyncio
import time

import pytest

from recordpublisher.testing.virtual_time import EPOCH_MS, VirtualClock, run_virtual


def test_an_hour_of_sleep_takes_no_time():
    async def sleeper() -> int:
        await asyncio.sleep(3600)
        return VirtualClock().now_ms()

    begun = time.monotonic()

    assert run_virtual(sleeper()) == EPOCH_MS + 3_600_000
    assert time.monotonic() - begun < 60


def test_a_wait_without_a_timer_is_a_deadlock():
    async def stuck() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="deadlock"):
        run_virtual(stuck())


def test_a_clock_that_is_read_before_the_loop_runs_creates_no_loop():
    clock = VirtualClock()
    assert clock.monotonic() == 0.0

    async def later():
        return clock.monotonic()

    assert run_virtual(later()) == 0.0


def test_a_function_in_a_thread_runs_at_once_and_its_error_is_raised():
    async def read() -> int:
        with pytest.raises(ValueError, match="invalid literal"):
            await asyncio.to_thread(int, "x")
        return await asyncio.to_thread(int, "7")

    assert run_virtual(read()) == 7


def test_a_clock_starts_where_it_is_told():
    async def later():
        await asyncio.sleep(2)
        return VirtualClock(1_000).now_ms()

    assert run_virtual(later()) == 3_000
