"""As the sink of a job, the Kinesis sink sends nothing of shards that another process has, nor while the job may not write (E4)."""

import asyncio
from dataclasses import replace

import pytest

from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.records import UserRecord
from recordpublisher.testing import run_virtual

from fakes.batches import batch
from fakes.writable_stream import FakeKinesis, a_sink

LOST = "orders/lost"
AGGREGATED = {"AggregationEnabled": True, "RecordMaxBufferedTime": 1_000}
ONE_BY_ONE = {"RecordMaxBufferedTime": 1_000}


class Permission:
    is_given = True

    def __call__(self):
        return self.is_given


def of_shard(shard_id, *payloads):
    """Records of two keys."""
    made = batch(*payloads, shard_id=shard_id)
    records = [
        UserRecord(record.data, record.sequence_number, record.arrival, f"k{number % 2}")
        for number, record in enumerate(made.records)
    ]
    return replace(made, records=records)


async def opened(fake, properties=None, may_write=lambda: True, **arguments):
    sink = a_sink(fake, properties, **arguments)
    await sink.open(SinkContext(may_write=may_write))
    return sink


def payloads_in(fake):
    return sorted(data for _, data in fake.user_records())


def test_calls_wait_for_the_permission_of_the_job():
    async def job():
        fake, permission = FakeKinesis(), Permission()
        permission.is_given = False
        sink = await opened(fake, may_write=permission)
        await sink.write(of_shard("mine", b"0", b"1"))
        await asyncio.sleep(60)
        before = payloads_in(fake)
        permission.is_given = True
        await sink.flush()
        await sink.close()
        return before, payloads_in(fake)

    assert run_virtual(job()) == ([], [b"0", b"1"])


@pytest.mark.parametrize("ordering", ["NONE", "PER_KEY"])
@pytest.mark.parametrize("properties", [ONE_BY_ONE, AGGREGATED])
def test_what_is_queued_of_a_revoked_shard_is_not_sent_and_the_rest_is(ordering, properties):
    async def job():
        fake = FakeKinesis()
        sink = await opened(fake, properties, ordering=ordering)
        await sink.write(of_shard("lost", b"0", b"1", b"2"))
        await sink.write(of_shard("mine", b"3", b"4", b"5"))
        sink.revoked([LOST])
        await sink.flush()
        await sink.close()
        return payloads_in(fake), sink.metrics()["outstandingRecordsCount"]

    assert run_virtual(job()) == ([b"3", b"4", b"5"], 0)


def test_a_sink_that_may_not_write_gets_rid_of_revoked_shards():
    async def job():
        fake = FakeKinesis()
        sink = await opened(fake, may_write=lambda: False)
        await sink.write(of_shard("lost", b"0", b"1"))
        sink.revoked([LOST])
        await sink.flush()
        await sink.close()
        return fake.calls

    assert run_virtual(job()) == []


def test_a_record_that_failed_is_not_sent_again_for_a_revoked_shard():
    async def job():
        fake = FakeKinesis()
        refused = asyncio.Event()

        def refuse(entry):
            refused.set()
            return "InternalFailure"

        fake.refuse = refuse
        sink = await opened(fake, {"RecordMaxBufferedTime": 0})
        await sink.write(of_shard("lost", b"0"))
        await refused.wait()
        sink.revoked([LOST])
        await sink.flush()
        await sink.close()
        return fake.calls

    assert run_virtual(job()) == [1]


def test_a_write_that_waits_at_the_limit_goes_on_when_its_shard_is_revoked():
    async def job():
        fake, permission = FakeKinesis(), Permission()
        permission.is_given = False
        sink = await opened(fake, may_write=permission, queue_limit=1)
        writing = asyncio.create_task(sink.write(of_shard("lost", b"0", b"1", b"2")))
        await asyncio.sleep(60)
        sink.revoked([LOST])
        await writing
        await sink.close()
        return fake.calls

    assert run_virtual(job()) == []


@pytest.mark.parametrize("by_key", [True, False])
def test_a_revoked_shard_that_comes_back_is_sent(by_key):
    async def job():
        fake = FakeKinesis(shards=2)
        fake.switch_distribution(by_key)
        sink = await opened(fake, AGGREGATED)
        await sink.write(of_shard("lost", b"0", b"1"))
        sink.revoked([LOST])
        sink.assigned([LOST])
        await sink.write(of_shard("lost", b"2", b"3"))
        await sink.flush()
        await sink.close()
        return payloads_in(fake), sink.metrics()["misroutedRecords"]

    assert run_virtual(job()) == ([b"2", b"3"], 0)
