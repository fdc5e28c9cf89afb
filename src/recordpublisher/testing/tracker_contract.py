"""The contract of watermark trackers (W6, S2) as tests. Subclass `TrackerContract`, provide a case, and run pytest.

class TestRedisTracker(TrackerContract):
    @asynccontextmanager
    async def open_case(self):
        yield TrackerCase(lambda: RedisTracker(properties))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps

from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskReport, SubtaskStatus, WatermarkTracker

from .contract import Contract, Test, on_case

ACTIVE, IDLE, LEFT = SubtaskStatus.ACTIVE, SubtaskStatus.IDLE, SubtaskStatus.LEFT
REPORT_INTERVAL = 0.02


@dataclass(frozen=True, slots=True)
class TrackerCase:
    """A job of several subtasks. `start` makes the tracker of one subtask. Trackers of subtasks in one process may be one object."""

    start: Callable[[], WatermarkTracker]


class _Pair:
    """Two subtasks of one job. Each reports again and again, as a running subtask does."""

    def __init__(self, trackers: list[WatermarkTracker]) -> None:
        self.trackers = trackers
        self.reports: dict[int, SubtaskReport] = {}

    def values(self) -> list[int | None]:
        return [tracker.current() for tracker in self.trackers]

    def report(self, subtask: int, watermark: int | None, status: SubtaskStatus = ACTIVE) -> None:
        self.reports[subtask] = SubtaskReport(subtask, status, watermark)
        self._report_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._report_all()
            await asyncio.sleep(REPORT_INTERVAL)

    def _report_all(self) -> None:
        for subtask, report in self.reports.items():
            self.trackers[subtask].report(report)


@asynccontextmanager
async def _opened(case: TrackerCase) -> AsyncIterator[_Pair]:
    trackers = [case.start(), case.start()]
    try:
        for subtask, tracker in enumerate(trackers):
            await tracker.open(subtask, len(trackers))
        yield _Pair(trackers)
    finally:
        for tracker in dict.fromkeys(trackers):
            await tracker.close()


def on_pair(test: Test[_Pair]) -> Callable[[Contract[TrackerCase]], None]:
    """Turn a test that is a coroutine function of two subtasks into a method for pytest."""

    @wraps(test)
    async def with_pair(contract: TrackerContract, case: TrackerCase) -> None:
        async with _opened(case) as pair:
            await test(contract, pair)

    return on_case(with_pair)


class TrackerContract(Contract[TrackerCase]):
    """The tests. Implement `open_case`."""

    @on_pair
    async def test_the_global_watermark_is_the_lowest_of_the_active_subtasks(self, pair: _Pair) -> None:
        """Each subtask gets the global watermark, which rises with the lowest one."""
        pair.report(0, 5)
        pair.report(1, 9)
        await pair.until(lambda: pair.values() == [5, 5])
        pair.report(0, 12)
        await pair.until(lambda: pair.values() == [9, 9])

    @on_pair
    async def test_an_idle_subtask_does_not_count(self, pair: _Pair) -> None:
        """The idle subtask still gets the global watermark (FLINK-29099)."""
        pair.report(0, 5)
        pair.report(1, 50)
        await pair.until(lambda: pair.values() == [5, 5])
        pair.report(0, None, IDLE)
        await pair.until(lambda: pair.values() == [50, 50])

    @on_pair
    async def test_a_subtask_that_left_does_not_count(self, pair: _Pair) -> None:
        """No subtask waits for it."""
        pair.report(0, 5)
        pair.report(1, 50)
        await pair.until(lambda: pair.values() == [5, 5])
        pair.report(0, None, LEFT)
        del pair.reports[0]
        await pair.until(lambda: pair.values()[1] == 50)

    @on_pair
    async def test_the_global_watermark_never_falls(self, pair: _Pair) -> None:
        """A subtask that reports a lower watermark, as after it took over a shard, does not move it back (W6)."""
        pair.report(0, 20)
        pair.report(1, 30)
        await pair.until(lambda: pair.values() == [20, 20])
        seen = list[int | None]()
        pair.report(0, 3)
        for _ in range(20):
            pair.report(1, 40)
            await asyncio.sleep(REPORT_INTERVAL)
            seen += pair.values()
        pair.report(0, 25)
        await pair.until(lambda: pair.values() == [25, 25])
        assert set(seen) == {20}, "the global watermark fell"

    @on_pair
    async def test_a_generation_starts_at_the_restored_watermark(self, pair: _Pair) -> None:
        """The global watermark is never lower than the restored one, whatever the first reports say (W6)."""
        for tracker in pair.trackers:
            tracker.start_at(100)
        pair.report(0, 90)
        pair.report(1, 110)
        await pair.until(lambda: pair.values() == [100, 100])
        pair.report(0, 105)
        await pair.until(lambda: pair.values() == [105, 105])

    @on_pair
    async def test_a_finished_shard_is_known_to_every_subtask(self, pair: _Pair) -> None:
        """The shard's children elsewhere wait for that (S2). A shard that no subtask has announced is not finished."""
        pair.report(0, 5)
        pair.report(1, 5)
        pair.trackers[0].announce_finished({"orders/a": 4})
        pair.trackers[0].announce_started(["orders/b"])
        await pair.until(lambda: all(tracker.is_finished("orders/a") for tracker in pair.trackers))
        await pair.until(lambda: all(tracker.is_started("orders/b") for tracker in pair.trackers))
        assert not any(tracker.is_finished("orders/b") for tracker in pair.trackers)
        assert not any(tracker.is_started("orders/a") for tracker in pair.trackers)
