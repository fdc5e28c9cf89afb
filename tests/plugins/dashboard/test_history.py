"""The totals of the last minutes, kept while nobody looks."""

import asyncio

from recordpublisher.plugins.dashboard.history import HISTORY_SECONDS, History, HistoryPoint
from recordpublisher.plugins.lag.job_snapshot import JobSnapshot, ShardSnapshot
from recordpublisher.publishers.errors import StateError
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual


def snapshot(time_ms, *values):
    shards = [
        ShardSnapshot(stream="orders", shard=str(at), records_per_second=rate, lag_ms=lag)
        for at, (rate, lag) in enumerate(values)
    ]
    return JobSnapshot(time_ms=time_ms, shards=shards)


class Source:
    """Gives what it is told to, or raises it."""

    def __init__(self, *given):
        self.given = list(given)

    async def snapshot(self):
        found = self.given.pop(0) if len(self.given) > 1 else self.given[0]
        if isinstance(found, Exception):
            raise found
        return found


def points_after(seconds, source, interval_seconds=10):
    async def run():
        history = History(source, VirtualClock(), interval_seconds)
        keeping = asyncio.create_task(history.run())
        await asyncio.sleep(seconds)
        keeping.cancel()
        return history.points

    return run_virtual(run())


def test_a_point_has_the_sum_of_the_rates_and_the_largest_lag():
    (point,) = points_after(1, Source(snapshot(5, (1.5, 40), (2.0, 70), (None, None))))

    assert point == HistoryPoint(5, 3.5, 70)


def test_what_is_not_known_is_no_zero():
    (point,) = points_after(1, Source(snapshot(5, (None, None))))

    assert point == HistoryPoint(5, None, None)


def test_a_job_that_cannot_be_read_is_a_gap_and_reading_goes_on(caplog):
    points = points_after(
        25, Source(snapshot(5, (1.0, 1)), StateError("away"), ValueError("odd"), snapshot(9, (2.0, 2)))
    )

    assert [(each.records_per_second, each.lag_ms) for each in points] == [(1.0, 1), (None, None), (None, None)]
    assert [each.exc_info[0] for each in caplog.records] == [ValueError]


def test_only_the_last_half_an_hour_is_kept():
    points = points_after(2 * HISTORY_SECONDS, Source(snapshot(5, (1.0, 1))))

    assert len(points) == HISTORY_SECONDS / 10
