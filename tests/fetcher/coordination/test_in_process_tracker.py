"""W6: the minimum over active subtasks, never falling within a generation."""

import math

from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.coordination.in_process_tracker import InProcessTracker
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskReport, SubtaskStatus

from fakes.shard_entries import StoppedClock

ACTIVE, IDLE, LEFT = SubtaskStatus.ACTIVE, SubtaskStatus.IDLE, SubtaskStatus.LEFT
REPORTS = st.builds(
    SubtaskReport, st.integers(0, 2), st.sampled_from(SubtaskStatus), st.none() | st.integers(-100, 100)
)


async def joined(*subtasks, parallelism=None):
    tracker = InProcessTracker()
    for subtask in subtasks:
        await tracker.open(subtask, parallelism or len(subtasks))
    return tracker


@given(st.lists(REPORTS, max_size=30), st.none() | st.integers(-100, 100))
def test_the_global_watermark_never_falls_whatever_is_reported(reports, start):
    tracker = InProcessTracker(parallelism=3)
    tracker.start_at(start)
    values = [-math.inf if value is None else value for value in (start, *map(tracker.report, reports))]

    assert values == sorted(values)


async def test_the_global_watermark_is_the_lowest_active_one():
    tracker = await joined(0, 1)
    tracker.report(SubtaskReport(0, ACTIVE, 5))

    assert tracker.report(SubtaskReport(1, ACTIVE, 9)) == 5
    assert tracker.report(SubtaskReport(0, ACTIVE, 12)) == 9


async def test_an_expected_subtask_that_has_not_reported_keeps_the_global_watermark_from_rising():
    tracker = await joined(0, parallelism=2)

    assert tracker.report(SubtaskReport(0, ACTIVE, 5)) is None
    assert tracker.missing_subtasks() == [1]


async def test_an_active_subtask_without_a_watermark_keeps_the_global_watermark_from_rising():  # W2
    tracker = await joined(0, 1)
    tracker.report(SubtaskReport(0, ACTIVE, 5))
    tracker.report(SubtaskReport(1, ACTIVE, 5))
    tracker.report(SubtaskReport(1, ACTIVE, None))

    assert tracker.report(SubtaskReport(0, ACTIVE, 50)) == 5


async def test_idle_and_left_subtasks_do_not_count():
    tracker = await joined(0, 1, 2)
    tracker.report(SubtaskReport(0, IDLE))
    tracker.report(SubtaskReport(1, LEFT))

    assert tracker.report(SubtaskReport(2, ACTIVE, 7)) == 7


async def test_with_no_active_subtask_the_global_watermark_stays():
    tracker = await joined(0)
    tracker.report(SubtaskReport(0, ACTIVE, 7))

    assert tracker.report(SubtaskReport(0, IDLE)) == 7


async def test_a_subtask_that_reports_a_lower_watermark_does_not_lower_the_global_one():
    tracker = await joined(0)
    tracker.report(SubtaskReport(0, ACTIVE, 7))

    assert tracker.report(SubtaskReport(0, ACTIVE, 3)) == 7


async def test_a_restored_job_begins_at_its_lowest_watermark():
    tracker = await joined(0, 1)
    tracker.start_at(40)

    assert tracker.current() == 40
    assert tracker.report(SubtaskReport(0, ACTIVE, 45)) == 40


async def test_a_late_start_does_not_change_the_global_watermark_of_a_running_job():
    tracker = await joined(0)
    tracker.report(SubtaskReport(0, ACTIVE, 7))
    tracker.start_at(40)

    assert tracker.current() == 7


async def test_a_subtask_that_timed_out_when_another_one_joined_joins_again_with_the_same_report():  # W6
    clock = StoppedClock()
    tracker = InProcessTracker(parallelism=3, clock=clock)
    for subtask in range(3):
        await tracker.open(subtask, 3)
    tracker.report(SubtaskReport(2, LEFT, None))
    tracker.report(SubtaskReport(0, ACTIVE, 100))
    for _ in range(29):
        clock.seconds += 1
        tracker.report(SubtaskReport(1, ACTIVE, 500))
    clock.seconds += 1.5
    await tracker.open(2, 3)  # here subtask 0 times out
    tracker.report(SubtaskReport(0, ACTIVE, 100))

    assert tracker.timed_out_subtasks() == ()


async def test_the_callbacks_run_at_once_when_the_global_watermark_rises():  # W9a
    tracker, calls = await joined(0, 1), []
    tracker.on_advance(lambda: calls.append(0))
    tracker.on_advance(lambda: calls.append(1))
    tracker.report(SubtaskReport(0, ACTIVE, 5))
    assert calls == []
    tracker.report(SubtaskReport(1, ACTIVE, 6))

    assert calls == [0, 1]


async def test_finished_shards_are_announced_to_all_subtasks():  # S2
    tracker, calls = await joined(0, 1), []
    tracker.on_advance(lambda: calls.append(0))
    tracker.announce_finished({"s/a": 7})
    tracker.announce_finished({"s/a": 7})

    assert calls == [0]
    assert tracker.is_finished("s/a")
    assert not tracker.is_finished("s/b")


async def test_a_new_generation_has_nothing_of_the_old_one():  # S2, W6
    tracker = await joined(0, 1)
    tracker.announce_finished({"s/a": 7})
    for subtask in (0, 1):
        tracker.report(SubtaskReport(subtask, ACTIVE, 70))
        tracker.report(SubtaskReport(subtask, LEFT))
    await tracker.open(0, 2)
    tracker.start_at(20)

    assert tracker.current() == 20
    assert not tracker.is_finished("s/a")
    assert tracker.missing_subtasks() == [1]


async def test_a_generation_lasts_while_one_subtask_is_connected():
    tracker = await joined(0, 1)
    tracker.report(SubtaskReport(0, ACTIVE, 70))
    tracker.report(SubtaskReport(1, ACTIVE, 70))
    tracker.report(SubtaskReport(0, LEFT))
    await tracker.open(0, 2)

    assert tracker.current() == 70


async def test_a_rescaled_job_is_a_new_generation():
    tracker = await joined(0)
    tracker.report(SubtaskReport(0, ACTIVE, 70))
    tracker.report(SubtaskReport(0, LEFT))
    await tracker.open(1, 2)
    await tracker.open(0, 2)

    assert tracker.current() is None
    assert tracker.missing_subtasks() == []


async def test_the_lowest_subtask_has_no_watermark_or_the_lowest_one():  # W10
    tracker = await joined(0, 1)
    assert tracker.lowest_subtask() == 0
    tracker.report(SubtaskReport(0, ACTIVE, 7))
    tracker.report(SubtaskReport(1, ACTIVE, 5))
    assert tracker.lowest_subtask() == 1
    tracker.report(SubtaskReport(0, ACTIVE, None))
    assert tracker.lowest_subtask() == 0


async def test_a_rescaled_job_does_not_wait_for_subtasks_of_the_old_parallelism():
    tracker = await joined(1, parallelism=3)  # it does not leave, and subtasks 0 and 2 never join
    for subtask in (0, 1):
        await tracker.open(subtask, 2)
        tracker.report(SubtaskReport(subtask, ACTIVE, 70))

    assert tracker.current() == 70
