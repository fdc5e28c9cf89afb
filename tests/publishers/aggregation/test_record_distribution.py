import asyncio

import pytest

from recordpublisher.publishers.aggregation.deaggregation import (
    FAILED_INTERVAL_SECONDS,
    MIN_INTERVAL_SECONDS,
    PROVISIONED_INTERVAL_SECONDS,
    ForeignSubRecords,
    RecordDistributionCheck,
)
from recordpublisher.publishers.errors import FatalKinesisError, StreamNotFoundError, TransientError
from recordpublisher.publishers.kinesis.ports import RecordDistribution
from recordpublisher.publishers.retry import RetryPolicy
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

DENIED = FatalKinesisError("DescribeStreamSummary", "AccessDeniedException", "no")
HOUR_MS = 3_600_000
DROP, KEEP, UNCHECKED = ForeignSubRecords.DROP, ForeignSubRecords.KEEP, ForeignSubRecords.KEEP_UNCHECKED


class Service:
    """A stream whose distribution can be switched, or whose description fails with `error`."""

    def __init__(self, error=None):
        self.clock = VirtualClock()
        self.by_key, self.error, self.requested_at = True, error, []
        self.is_switchable = True

    async def record_distribution(self, stream):
        self.requested_at.append(self.clock.monotonic())
        await asyncio.sleep(0.1)
        if self.error is not None:
            raise self.error
        return RecordDistribution(self.by_key, self.clock.now_ms(), self.is_switchable)

    def check(self):
        return RecordDistributionCheck(self, "orders", RetryPolicy(2, 10, 10, 1.0), self.clock)


def test_s4_a_record_older_than_the_request_needs_no_further_request():
    async def run():
        service = Service()
        check = service.check()
        old = service.clock.now_ms() - HOUR_MS
        assert [await check.foreign_sub_records(old) for _ in range(3)] == [DROP] * 3
        assert len(service.requested_at) == 1

    run_virtual(run())


def test_s4_a_switch_to_auto_is_detected_before_a_later_record_is_dropped():
    async def run():
        service = Service()
        check = service.check()
        assert await check.foreign_sub_records(service.clock.now_ms()) is DROP
        service.by_key = False
        assert await check.foreign_sub_records(service.clock.now_ms()) is KEEP
        first, second = service.requested_at
        assert second - first >= MIN_INTERVAL_SECONDS

    run_virtual(run())


def test_s4_after_a_switch_back_sub_records_are_still_kept():
    async def run():
        service = Service()
        check = service.check()
        service.by_key = False
        assert await check.foreign_sub_records(service.clock.now_ms()) is KEEP
        service.by_key = True
        await asyncio.sleep(MIN_INTERVAL_SECONDS)
        assert await check.foreign_sub_records(service.clock.now_ms() - HOUR_MS) is KEEP

    run_virtual(run())


def test_s4_many_shards_share_one_request():
    async def run():
        service = Service()
        check = service.check()
        now = service.clock.now_ms()
        assert set(await asyncio.gather(*[check.foreign_sub_records(now) for _ in range(50)])) == {DROP}
        assert len(service.requested_at) == 1

    run_virtual(run())


@pytest.mark.parametrize("error", [DENIED, TransientError("DescribeStreamSummary", "Slow", "down")])
def test_s4_when_requests_fail_sub_records_are_kept_with_one_warning(error, caplog):
    async def run():
        service = Service(error)
        check = service.check()
        for _ in range(3):
            assert await check.foreign_sub_records(service.clock.now_ms()) is UNCHECKED
            await asyncio.sleep(FAILED_INTERVAL_SECONDS + 1)

    run_virtual(run())
    assert len([one for one in caplog.records if one.levelname == "WARNING"]) == 1


def test_s4_a_permission_that_is_granted_later_is_used():
    async def run():
        service = Service(DENIED)
        check = service.check()
        assert await check.foreign_sub_records(service.clock.now_ms()) is UNCHECKED
        service.error = None
        assert await check.foreign_sub_records(service.clock.now_ms()) is UNCHECKED
        assert len(service.requested_at) == 1
        await asyncio.sleep(FAILED_INTERVAL_SECONDS)
        assert await check.foreign_sub_records(service.clock.now_ms()) is DROP

    run_virtual(run())


def test_a_missing_stream_is_an_error():
    async def run():
        with pytest.raises(StreamNotFoundError):
            await Service(StreamNotFoundError("orders")).check().foreign_sub_records(0)

    run_virtual(run())


@pytest.mark.parametrize(("is_switchable", "expected"), [(True, ForeignSubRecords.KEEP_MISPLACED), (False, DROP)])
def test_s4_a_misplaced_record_is_kept_where_keys_decide_now_but_did_not_always(is_switchable, expected):
    """It was put under AUTO, before this reader started: nobody puts its sub-records again."""

    async def run():
        service = Service()
        service.is_switchable = is_switchable
        check = service.check()
        old = service.clock.now_ms() - HOUR_MS
        decisions = [await check.foreign_sub_records(old, is_misplaced) for is_misplaced in (True, False)]
        assert decisions == [expected, DROP]

    run_virtual(run())


def test_s4_fresh_records_of_a_provisioned_stream_wait_for_a_second_at_most():
    async def run():
        service = Service()
        service.is_switchable = False
        check = service.check()
        for _ in range(5):
            began = service.clock.monotonic()
            assert await check.foreign_sub_records(service.clock.now_ms()) is DROP
            assert service.clock.monotonic() - began <= PROVISIONED_INTERVAL_SECONDS + 0.1

    run_virtual(run())
