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


@pytest.mark.parametrize("ordering", ["NONE", "PER_KEY"])
def test_parts_of_a_revoked_shard_in_an_aggregate_that_is_sent_do_not_count_as_put(ordering):
    """The shard's next reader puts them, so the group would count them twice."""

    async def job():
        fake = FakeKinesis()
        sink = await opened(fake, AGGREGATED, ordering=ordering)
        await sink.write(of_shard("lost", b"0", b"1", b"2"))
        await sink.write(of_shard("mine", b"3", b"4", b"5"))
        sink.revoked([LOST])
        await sink.flush()
        await sink.close()
        numbers = sink.metrics()
        return payloads_in(fake), numbers["numRecordsOut"], numbers["numBytesOut"]

    assert run_virtual(job()) == ([b"3", b"4", b"5"], 3, 9)


@pytest.mark.parametrize("ordering", ["NONE", "PER_KEY"])
@pytest.mark.parametrize("is_sent", [False, True])
def test_records_of_a_revoked_shard_are_not_reported_as_failed(
    is_sent, ordering
):  # The next reader of their shard puts them.
    async def job():
        fake, failed = FakeKinesis(), []
        fake.refuse, fake.latency = lambda entry: "ValidationException", 1.0
        properties = {**AGGREGATED, "flink.sink.kinesis.failonerror": "false"}
        sink = await opened(fake, properties, ordering=ordering, on_failure=failed.append)
        await sink.write(of_shard("lost", b"0", b"1"))
        await sink.write(of_shard("mine", b"2", b"3"))
        await asyncio.sleep(1.1 if is_sent else 0)
        sink.revoked([LOST])
        await sink.flush()
        await sink.close()
        return sorted(record.data for record in failed), sink.metrics()["outstandingRecordsCount"]

    assert run_virtual(job()) == ([b"2", b"3"], 0)


def test_a_record_of_a_revoked_shard_that_cannot_be_put_does_not_end_the_job():
    async def job():
        fake = FakeKinesis()
        fake.refuse = lambda entry: "ValidationException" if entry.data == b"0" else None
        fake.latency = 1.0
        sink = await opened(fake, {"RecordMaxBufferedTime": 0})
        await sink.write(of_shard("lost", b"0"))
        await asyncio.sleep(0.1)
        sink.revoked([LOST])
        await sink.flush()
        await sink.write(of_shard("mine", b"1"))
        await sink.close()
        return payloads_in(fake), sink.metrics()["numRecordsOutErrors"]

    assert run_virtual(job()) == ([b"1"], 0)


def test_a_later_record_of_the_key_waits_for_the_part_that_is_sent_of_an_aggregate():
    """The aggregate has two records of the key, one of a revoked shard: the key is released once, by the other one."""

    def of_one_key(shard_id, *payloads):
        made = batch(*payloads, shard_id=shard_id)
        records = [UserRecord(each.data, each.sequence_number, each.arrival, "k") for each in made.records]
        return replace(made, records=records)

    async def job():
        fake = FakeKinesis()
        sink = await opened(fake, AGGREGATED, ordering="PER_KEY")
        fake.latency = 1.0
        await sink.write(of_one_key("mine", b"0"))
        await sink.write(of_one_key("lost", b"1"))
        await sink.write(of_one_key("mine", b"2", b"3"))
        await asyncio.sleep(1.1)
        sink.revoked([LOST])
        fake.refuse = lambda entry: "InternalFailure" if len(fake.calls) == 2 else None
        flushing = asyncio.create_task(sink.flush())
        await asyncio.sleep(0.5)
        await sink.write(of_one_key("mine", b"4"))
        await flushing
        await sink.flush()
        await sink.close()
        return [data for _, data in fake.user_records()], sink.metrics()["numRecordsOut"]

    assert run_virtual(job()) == ([b"0", b"2", b"3", b"4"], 4)


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
