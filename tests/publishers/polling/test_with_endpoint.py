"""Polling through the real SDK against the embedded endpoint: real sockets, reshards, expiry, quotas and faults."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from recordpublisher.local import LocalKinesis, Quotas
from recordpublisher.local.stream import merge, split
from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import DataLossError, FatalKinesisError, StreamNotFoundError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.polling import PollingRecordPublisherFactory
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shard_metrics import ShardMetrics

from servers.fast_time import FastClock, run_fast
from servers.kpl_aggregates import aggregate

FIRST = "shardId-000000000000"
HALF = 2**127


class EnoughError(Exception):
    """The test has read enough."""


class Job:
    """A polling job on the endpoint. Reads shards and keeps their batches."""

    def __init__(self, endpoint, **properties):
        patient = {"aws.request.timeout": 3_600_000}  # time runs fast here
        self.endpoint = endpoint
        self.stream = endpoint.stream("orders")
        self.properties = Properties({**endpoint.properties(), **patient, **properties})
        self.clock = FastClock()
        self.factory = PollingRecordPublisherFactory(self.properties, clock=self.clock)
        self.metrics = ShardMetrics()
        self.batches = []

    @property
    def data(self):
        return [record.data for batch in self.batches for record in batch]

    async def shards(self):
        async with KinesisClient(self.properties) as client:
            return {shard.shard_id: shard for shard in await client.list_shards("orders")}

    async def read(self, shard=None, start=None, until=None, between=None):
        """Read a shard to its end, or until `until` records were read; `between` runs after every batch."""
        shard = shard or (await self.shards())[FIRST]

        async def consumer(batch):
            self.batches.append(batch)
            if between is not None:
                await between(batch)
            if until is not None and len(self.data) >= until:
                raise EnoughError
            return batch.read_position

        publisher = await self.factory.create(shard, start or StartingPosition.trim_horizon(), self.metrics)
        try:
            return await publisher.run(consumer)
        except EnoughError:
            return RunResult.CANCELLED


@asynccontextmanager
async def a_job(shards=1, quotas=None, **properties):
    async with LocalKinesis(streams={"orders": shards}, clock=FastClock(), quotas=quotas) as endpoint:
        job = Job(endpoint, **properties)
        try:
            yield job
        finally:
            await job.factory.close()


def numbers(stop, start=0):
    return [str(n).encode() for n in range(start, stop)]


def put(stream, data, hash_key=0):
    for one in data:
        stream.put(one, "key", hash_key)


def test_p1_a_split_shard_is_read_to_its_end_and_then_its_children():
    async def scenario():
        async with a_job() as job:
            put(job.stream, numbers(50))
            split(job.stream, job.stream.shard(FIRST), HALF)
            put(job.stream, numbers(60, 50))
            put(job.stream, numbers(70, 60), HALF)
            assert await job.read() is RunResult.COMPLETE
            children = job.batches[-1].child_shards
            assert [child.parents for child in children] == [(FIRST,), (FIRST,)]
            listed = await job.shards()
            assert [listed[child.shard_id].hash_range for child in children] == [c.hash_range for c in children]
            await job.read(children[0], until=60)
            await job.read(children[1], until=70)
            assert job.data == numbers(70)

    run_fast(scenario())


def test_p1_both_merged_parents_name_their_child():
    async def scenario():
        async with a_job(shards=2) as job:
            low, high = job.stream.open_shards
            merge(job.stream, low, high)
            listed = await job.shards()
            for parent in (low, high):
                assert await job.read(listed[parent.id]) is RunResult.COMPLETE
            (first,), (second,) = (batch.child_shards for batch in job.batches if batch.child_shards)
            assert first == second
            assert set(first.parents) == {low.id, high.id}

    run_fast(scenario())


def test_r2_iterators_that_expire_repeatedly_cause_no_gap_and_no_duplicate():
    async def scenario():
        async with a_job(**{"flink.shard.getrecords.maxrecordcount": "10"}) as job:
            put(job.stream, numbers(100))

            async def between(batch):
                job.endpoint.faults.expire_iterators()

            await job.read(until=100, between=between)
            assert job.data == numbers(100)
            assert job.metrics.iterator_refreshes == 9

    run_fast(scenario())


def test_r2_an_iterator_that_grew_old_under_back_pressure_causes_no_failed_call():
    async def scenario():
        async with a_job(**{"flink.shard.getrecords.maxrecordcount": "1"}) as job:
            put(job.stream, numbers(2))

            async def between(batch):
                if len(job.batches) == 1:
                    job.endpoint.clock.jump(301)
                    job.clock.jump(301)

            await job.read(until=2, between=between)
            assert job.data == numbers(2)
            assert (job.metrics.iterator_refreshes, job.metrics.retries) == (1, 0)

    run_fast(scenario())


def test_r1_no_call_is_refused_by_the_services_quotas():
    async def scenario():
        async with a_job(quotas=Quotas.service()) as job:
            put(job.stream, [b"x" * 2**20] * 25)
            began = asyncio.get_running_loop().time()
            await job.read(until=25)
            assert job.metrics.throttles == 0
            assert asyncio.get_running_loop().time() - began >= 10

    run_fast(scenario())


def test_r4_lost_connections_throttled_and_failed_calls_are_retried():
    async def scenario():
        async with a_job() as job:
            faults = job.endpoint.faults
            put(job.stream, numbers(3))
            faults.drop_next("GetShardIterator")
            faults.drop_next("GetRecords")  # an idle connection: sent again at once over a new one, which is no retry
            faults.drop_next("GetRecords")
            faults.fail_next("GetRecords", "ProvisionedThroughputExceededException")
            faults.fail_next("GetRecords", "InternalFailure", status=500)
            await job.read(until=3)
            assert job.data == numbers(3)
            assert (job.metrics.retries, job.metrics.throttles) == (4, 1)

    run_fast(scenario())


def test_fatal_errors_end_the_run_with_a_hint():
    async def scenario():
        async with a_job() as job:
            job.endpoint.faults.fail_next("GetRecords", "KMSDisabledException")
            with pytest.raises(FatalKinesisError, match="enable the stream's KMS key"):
                await job.read()

    run_fast(scenario())


def test_s4_p2_a_restart_inside_an_aggregate_repeats_nothing():
    async def scenario():
        async with a_job() as job:
            put(job.stream, [b"plain", aggregate(*[("key", n) for n in numbers(5)]), b"last"])
            await job.read(until=7)
            assert job.data == [b"plain", *numbers(5), b"last"]
            third = list(job.batches[0])[3]
            job.batches.clear()
            inside = SequenceNumber(third.sequence_number, third.sub_sequence_number)
            await job.read(start=StartingPosition.after(inside), until=3)
            assert job.data == [*numbers(5, 3), b"last"]

    run_fast(scenario())


def test_p3_latest_is_pinned_so_that_a_slow_start_loses_nothing():
    async def scenario():
        async with a_job() as job:
            put(job.stream, [b"old"])
            await asyncio.sleep(3)
            shard = (await job.shards())[FIRST]
            publisher = await job.factory.create(shard, StartingPosition.latest(), job.metrics)
            put(job.stream, [b"new"])

            async def consumer(batch):
                job.batches.append(batch)
                raise EnoughError

            with pytest.raises(EnoughError):
                await publisher.run(consumer)
            assert job.data == [b"new"]

    run_fast(scenario())


def test_f4_a_shard_past_retention_is_data_loss():
    async def scenario():
        async with a_job() as job:
            put(job.stream, numbers(3))
            shard = (await job.shards())[FIRST]
            split(job.stream, job.stream.shard(FIRST), HALF)
            job.endpoint.clock.jump(48 * 3600)
            job.stream.apply_retention()
            with pytest.raises(DataLossError, match=FIRST):
                await job.read(shard)

    run_fast(scenario())


def test_f4_a_deleted_stream_is_a_stream_not_found_error():
    async def scenario():
        async with a_job() as job:
            shard = (await job.shards())[FIRST]

            async def between(batch):
                job.stream.set_busy("DELETING", 0)

            with pytest.raises(StreamNotFoundError, match="orders"):
                await job.read(shard, between=between)

    run_fast(scenario())


def test_polling_and_fan_out_read_the_same_records():
    async def scenario():
        async with a_job() as job:
            put(job.stream, [b"", b"\x00\xff", b"x" * 100_000, aggregate(("a", b"1"))])
            shard = (await job.shards())[FIRST]
            async with KinesisClient(job.properties) as client:
                iterator = await client.get_shard_iterator(shard, StartingPosition.trim_horizon())
                polled = await client.get_records(shard, iterator, 100)
                consumer = await client.register_consumer(await client.stream_arn("orders"), "me")
                await asyncio.sleep(1)
                events = await client.subscribe_to_shard(consumer.arn, shard, StartingPosition.trim_horizon())
                pushed = await anext(aiter(events))
                await events.close()
            assert pushed.records == polled.records
            assert len(polled.records) == 4
            assert pushed.continuation is not None

    run_fast(scenario())
