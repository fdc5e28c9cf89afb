"""W3, W7: a process that was stopped or starved detects it at the first check."""

import asyncio

import pytest

from recordpublisher.fetcher.pipeline.process_suspension import TICK_SECONDS, SuspensionDetector
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.shard_entries import StoppedClock


class SleepingClock(StoppedClock):
    """A machine's clocks: `paused` is seen by the wall clock only, `slept` also by the one that counts sleep."""

    slept = paused = set_back = 0.0

    def now_ms(self):
        return round((self.seconds + self.slept + self.paused - self.set_back) * 1000)

    def boottime(self):
        return self.seconds + self.slept


def suspension(clock):
    gaps = []
    return SuspensionDetector(clock, gaps.append), gaps


def test_a_gap_is_detected_once_by_the_first_check():
    clock = StoppedClock()
    made, gaps = suspension(clock)
    clock.seconds += 60
    made.check()
    made.check()

    assert gaps == [60 - TICK_SECONDS]
    assert made.lost_seconds == 60 - TICK_SECONDS


@pytest.mark.parametrize("set_back", [0, 1_000, 3_600, 86_400])
def test_the_sleep_of_a_machine_is_a_gap_even_if_its_wall_clock_is_set_back(set_back):
    clock = SleepingClock()
    made, gaps = suspension(clock)
    clock.slept += 3_600
    clock.set_back += set_back
    clock.seconds += 0.1
    made.check()

    assert [round(gap) for gap in gaps] == [3_600]


def test_the_pause_of_a_virtual_machine_shows_on_the_wall_clock_only():
    clock = SleepingClock()
    made, gaps = suspension(clock)
    clock.paused += 3_600
    made.check()

    assert [round(gap) for gap in gaps] == [3_600]


def test_a_wall_clock_set_back_is_no_gap():
    clock = SleepingClock()
    made, gaps = suspension(clock)
    clock.set_back += 3_600
    made.check()

    assert gaps == []


def test_the_time_between_runs_is_not_lost_time():
    clock = StoppedClock()
    made, gaps = suspension(clock)
    clock.seconds += 60
    made.reset()
    made.check()

    assert (gaps, made.lost_seconds) == ([], 0.0)


def test_running_time_counts_neither_suspension_nor_the_time_between_runs():
    clock = StoppedClock()
    made, _ = suspension(clock)
    for _ in range(4):
        clock.seconds += TICK_SECONDS
        made.tick()
    clock.seconds += 100  # suspended
    made.tick()
    clock.seconds += 100  # between two runs
    made.reset()

    assert made.running_seconds == 5 * TICK_SECONDS


async def ticks(seconds, starve=0.0):
    made, gaps = suspension(VirtualClock())
    running = asyncio.create_task(made.run())
    loop, end = asyncio.get_running_loop(), asyncio.get_running_loop().time() + seconds
    while loop.time() < end:
        await asyncio.sleep(0.01)
        loop.suspend(starve)  # 10 ms of work, then the quota is used up
    running.cancel()
    return made.lost_seconds, gaps


def test_a_running_process_loses_no_time():
    lost, gaps = run_virtual(ticks(20))

    assert (round(lost, 3), gaps) == (0, [])


def test_a_cpu_quota_of_10_ms_in_100_shows_no_gap_but_lost_time():
    lost, gaps = run_virtual(ticks(20, starve=0.087))

    assert gaps == []
    assert lost > 0.5
