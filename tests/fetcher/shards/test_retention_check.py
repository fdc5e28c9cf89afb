"""Whether records passed the retention unread: first the times, then the shard's oldest record (S5)."""

import pytest

from recordpublisher.fetcher.shards.retention_check import RetentionCheck, RetentionGap, may_have_gap
from recordpublisher.publishers.errors import RetriesExhaustedError
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.shards import OldestRecord

from fakes.shard_entries import StoppedClock, shard

HOUR_MS = 3_600_000
NOW_MS = 1_000 * HOUR_MS
POSITION = SequenceNumber("5")


class Service:
    """What a stream keeps (hours; None: it does not say) and what a shard's oldest record is; counts the calls."""

    def __init__(self, retention_hours=24, oldest=None):
        self.retention_hours, self.oldest = retention_hours, oldest or OldestRecord("9", NOW_MS - HOUR_MS)
        self.clock = StoppedClock(NOW_MS / 1000)
        self.calls = []
        self.check = RetentionCheck(self.oldest_retained, self.oldest_record, int, self.clock)

    async def oldest_retained(self, stream):
        self.calls.append("retention")
        if isinstance(self.retention_hours, Exception):
            raise self.retention_hours
        return None if self.retention_hours is None else self.clock.now_ms() - self.retention_hours * HOUR_MS

    async def oldest_record(self, asked):
        self.calls.append("oldest")
        if isinstance(self.oldest, Exception):
            raise self.oldest
        return None if self.oldest == "own source" else self.oldest

    async def gap(self, hours_ago, position=POSITION, hole_ms=0):
        seen_ms = NOW_MS - round(hours_ago * HOUR_MS)
        return await self.check.gap_after(shard(), position, seen_ms, seen_ms + hole_ms)


@pytest.mark.parametrize(("hours_ago", "may_be"), [(0, False), (22.9, False), (23.1, True), (None, False)])
def test_a_position_younger_than_the_shortest_retention_is_never_asked_about(hours_ago, may_be):
    assert may_have_gap(None if hours_ago is None else NOW_MS - round(hours_ago * HOUR_MS), NOW_MS) is may_be


async def test_a_position_within_retention_has_no_gap_and_its_shard_is_not_read():
    service = Service(168)

    assert await service.gap(30) is RetentionGap.NONE
    assert service.calls == ["retention"]


async def test_a_later_oldest_record_behind_a_position_past_retention_is_a_gap():
    assert await Service().gap(30) is RetentionGap.LOST
    assert await Service().gap(30, None) is RetentionGap.LOST


@pytest.mark.parametrize("sequence", ["4", "5"])
async def test_an_oldest_record_up_to_the_position_is_no_gap(sequence):
    assert await Service(oldest=OldestRecord(sequence, NOW_MS - 31 * HOUR_MS)).gap(30) is RetentionGap.NONE


async def test_a_shard_without_records_tells_nothing():
    assert await Service(oldest=OldestRecord()).gap(30) is RetentionGap.NOT_CHECKED


async def test_a_shard_that_cannot_be_read_tells_nothing():
    assert await Service(oldest=RetriesExhaustedError("no")).gap(30) is RetentionGap.NOT_CHECKED


async def test_a_source_of_its_own_is_not_judged():
    assert await Service(None, "own source").gap(30) is RetentionGap.NONE


@pytest.mark.parametrize("unknown", [None, RetriesExhaustedError("no")])
async def test_with_an_unknown_retention_the_oldest_record_decides(unknown):
    assert await Service(unknown).gap(30) is RetentionGap.LOST
    assert await Service(unknown, OldestRecord("5", NOW_MS - 30 * HOUR_MS)).gap(30) is RetentionGap.NONE


async def test_with_an_unknown_retention_nothing_younger_than_a_day_is_lost():
    assert await Service(None).gap(23.5) is RetentionGap.NONE


async def test_with_an_unknown_retention_a_reader_far_behind_asks_every_five_minutes():
    service = Service(None, OldestRecord("5", NOW_MS - 90 * HOUR_MS))
    for _ in range(10):
        assert await service.gap(80) is RetentionGap.NONE
        service.clock.seconds += 60

    assert service.calls.count("oldest") == 2


async def test_a_reader_that_is_past_retention_and_lost_nothing_is_checked_every_ten_seconds():
    service = Service(24, OldestRecord("5", NOW_MS - 90 * HOUR_MS))
    for _ in range(24):
        assert await service.gap(80) is RetentionGap.NONE
        service.clock.seconds += 1

    assert service.calls.count("oldest") == 3


async def test_a_retention_that_cannot_be_read_is_requested_again_after_five_minutes():
    service = Service(RetriesExhaustedError("no"), OldestRecord("5", NOW_MS - 90 * HOUR_MS))
    for _ in range(10):
        await service.gap(80)
        service.clock.seconds += 60

    assert service.calls.count("retention") == 2


async def test_the_retention_is_asked_again_after_five_minutes_since_it_can_be_changed():
    service = Service(168)
    await service.gap(30)
    service.retention_hours = 24
    assert await service.gap(30) is RetentionGap.NONE
    service.clock.seconds += 301

    assert await service.gap(30) is RetentionGap.LOST


@pytest.mark.parametrize(("seconds", "gap"), [(0, RetentionGap.NONE), (11, RetentionGap.LOST)])
async def test_a_reader_that_finds_no_records_of_hours_asks_for_the_retention_anew_every_ten_seconds(seconds, gap):
    """The retention may have been shortened: what was read from the cache would hide the gap."""
    service = Service(168)
    await service.gap(30)
    service.retention_hours = 24
    service.clock.seconds += seconds

    assert await service.gap(30, hole_ms=6 * HOUR_MS) is gap
