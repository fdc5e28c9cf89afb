"""A shard is read from start to end by both publishers: the cases of the connector's ShardConsumer tests (tests/conformance)."""

import asyncio

import pytest

from recordpublisher.consumer.deserialization import BytesDeserializer
from recordpublisher.consumer.event_time import ArrivalTimestamps
from recordpublisher.consumer.shard_consumer import BatchDecorator, ShardConsumer
from recordpublisher.consumer.watermark_strategies import BoundedOutOfOrderness
from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import ExpiredIteratorError
from recordpublisher.publishers.initial_position import initial_position
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.polling import PollingConfig, PollingRecordPublisher
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fanout_harness import FanOutHarness
from fakes.fanout_service import event, in_use, network, shard_end
from fakes.polling_shard import CHILD, SHARD, FakeShard
from servers.kpl_aggregates import aggregate

KIB = 1024
BEGINNING = StartingPosition.trim_horizon()


class Output:
    """Records the output of one shard."""

    def __init__(self, read_budget=1 << 30):
        self.batches, self.ended, self.read_budget = [], None, read_budget

    @property
    def data(self):
        return [data for batch in self.batches for data in batch.data]

    def first_read_budget(self):
        return self.read_budget

    async def put(self, batch):
        self.batches.append(batch)
        return self.read_budget

    def end(self, children):
        self.ended = list(children)


async def consume(publisher, metrics):
    options = {"on_poison": OnBadRecord.FAIL, "future_limit_ms": -1}
    decorator = BatchDecorator(
        BytesDeserializer(), ArrivalTimestamps(), BoundedOutOfOrderness(Properties()), metrics, **options
    )
    output = Output()
    assert await ShardConsumer(publisher, decorator, output).run() is RunResult.COMPLETE
    assert output.ended is not None
    return output


def poll(fake, start=BEGINNING, **properties):
    """Read a shard of FakeShard by polling; returns the output and the metrics."""
    metrics = ShardMetrics()
    config = PollingConfig.of(Properties({"flink.shard." + key: value for key, value in properties.items()}))

    async def run():
        return await consume(PollingRecordPublisher(fake, SHARD, start, config, metrics, VirtualClock()), metrics)

    return run_virtual(run()), metrics


def push(*subscriptions, start=BEGINNING):
    """Read a shard of scripted subscriptions by fan-out; returns the output and the harness."""
    harness = FanOutHarness(*subscriptions)

    async def run():
        return await consume(await harness.publisher(start), harness.metrics)

    return run_virtual(run()), harness


def texts(stop, first=0):
    return [str(number).encode() for number in range(first, stop)]


def paged(fake, size):
    fake.page = size
    return fake


class TestPolling:
    def test_records_reads_and_lag_are_counted(self):
        output, metrics = poll(paged(FakeShard(*texts(500), closed=True), 100))
        assert output.data == texts(500)
        assert (metrics.reads, metrics.number_of_aggregated_records, metrics.number_of_deaggregated_records) == (
            5,
            500,
            500,
        )
        assert [batch.millis_behind_latest for batch in output.batches] == [400_000, 300_000, 200_000, 100_000, 0]
        assert output.ended == [CHILD]

    def test_an_empty_shard_with_a_timestamp_start_ends_without_records(self):
        start = StartingPosition.at_timestamp(1_459_799_926_480)
        fake = FakeShard(closed=True)
        output, _ = poll(fake, start)
        assert (output.data, fake.positions) == ([], [start])

    def test_a_start_after_a_sequence_number(self):
        fake = paged(FakeShard(*texts(1000), closed=True), 112)
        output, metrics = poll(fake, StartingPosition.after(SequenceNumber("1")))
        assert output.data == texts(1000, 1)
        assert metrics.reads == 9
        assert fake.positions == [StartingPosition(PositionType.AFTER_SEQUENCE_NUMBER, "1")]

    def test_a_start_at_a_timestamp_of_the_properties(self):
        given = {
            "flink.stream.initpos": "AT_TIMESTAMP",
            "flink.stream.initpos.timestamp": "2016-04-04T19:58:46.480-00:00",
        }
        fake = FakeShard(*texts(10), closed=True)
        output, _ = poll(fake, initial_position(Properties(given)))
        assert len(output.data) == 10
        assert fake.positions == [StartingPosition.at_timestamp(1_459_799_926_480)]

    def test_a_start_at_trim_horizon(self):
        fake = FakeShard(*texts(50), closed=True)
        output, _ = poll(fake)
        assert len(output.data) == 50
        assert fake.positions == [BEGINNING]

    def test_an_iterator_that_expires_during_the_read(self):
        fake = paged(FakeShard(*texts(1000), closed=True), 112)
        expired = ExpiredIteratorError("GetRecords", "ExpiredIteratorException", "Iterator expired.")
        read = fake.get_records

        async def on_the_seventh(shard, iterator, limit):
            if len(fake.read_at) == 6 and not fake.errors["GetRecords"] and len(fake.positions) == 1:
                fake.errors["GetRecords"].append(expired)
            return await read(shard, iterator, limit)

        fake.get_records = on_the_seventh
        output, metrics = poll(fake)
        assert output.data == texts(1000)
        assert metrics.iterator_refreshes == 1
        assert fake.positions[1].type is PositionType.AFTER_SEQUENCE_NUMBER

    def test_adaptive_reads_use_two_mebibytes_a_second(self):
        fake = FakeShard(*[bytes(10 * KIB - 1)] * 50, closed=True)
        output, _ = poll(fake, adaptivereads="true", **{"getrecords.maxrecordcount": 10})
        assert [len(batch) for batch in output.batches] == [10, 40]
        assert fake.limits[1] == 40

    def test_aggregates(self):
        parts = [("key", bytes(KIB))] * 5
        output, metrics = poll(paged(FakeShard(*[aggregate(*parts)] * 30, closed=True), 3))
        assert len(output.data) == 150
        assert [(batch.raw_count, len(batch)) for batch in output.batches] == [(3, 15)] * 10
        assert (metrics.number_of_aggregated_records, metrics.number_of_deaggregated_records) == (30, 150)

    def test_a_start_inside_an_aggregate(self):
        fake = paged(FakeShard(*[aggregate(*[("key", bytes(1))] * 10)] * 5, closed=True), 1)
        output, _ = poll(fake, StartingPosition.after(SequenceNumber("1", 5)))
        assert len(output.data) == 44
        assert (fake.positions[0].type, fake.positions[0].sequence_number) == (PositionType.AT_SEQUENCE_NUMBER, "1")


class TestFanOut:
    def test_an_empty_shard_needs_one_subscription(self):
        output, harness = push((shard_end(),))
        assert (output.data, len(harness.ports.calls)) == ([], 1)

    def test_a_subscription_without_events_keeps_a_timestamp_start(self):
        start = StartingPosition.at_timestamp(1_459_799_926_480)
        output, harness = push((), (shard_end(1),), start=start)
        assert len(output.data) == 1
        assert harness.ports.positions == [start, start]

    def test_empty_events_move_a_timestamp_start_to_their_continuation(self):
        """Unlike the connector, which subscribes again at a time that may be past retention by then (F6)."""
        _, harness = push((event(continuation=7),), (shard_end(8),), start=StartingPosition.at_timestamp(1))
        assert harness.ports.positions[1] == StartingPosition.after(SequenceNumber("7"))

    def test_many_events_of_one_subscription(self):
        output, harness = push((*[event(*range(10 * n, 10 * n + 10)) for n in range(5)], shard_end()))
        assert len(output.data) == 50
        assert len(harness.ports.calls) == 1

    def test_many_subscriptions(self):
        events = [event(*range(10 * n, 10 * n + 10)) for n in range(100)]
        output, harness = push(*[tuple(events[n : n + 5]) for n in range(0, 100, 5)], (shard_end(),))
        assert [number for batch in output.batches for number in batch.sequence_numbers] == [*map(str, range(1000))]
        assert len(harness.ports.calls) == 21
        assert {position.type for position in harness.ports.positions[1:]} == {PositionType.AFTER_SEQUENCE_NUMBER}

    def test_aggregates(self):
        part = aggregate(*[("key", bytes(1))] * 100)
        records = [event(n).records[0] for n in range(10)]
        for record in records:
            record.data = part
        output, _ = push((*[ReadResponse(records, 0, None, "9")] * 1, shard_end()))
        assert len(output.data) == 1000

    def test_aggregates_over_many_subscriptions(self):
        events = [event(n) for n in range(120)]
        for one in events:
            one.records[0].data = aggregate(*[("key", b"%d" % part) for part in range(5)])
        output, _ = push(*[tuple(events[n : n + 3]) for n in range(0, 120, 3)], (shard_end(),))
        places = [(r.sequence_number, r.sub_sequence_number) for batch in output.batches for r in batch]
        assert places == [(str(number), part) for number in range(120) for part in range(5)]

    @pytest.mark.parametrize("error", [network(), in_use()])
    def test_an_error_in_every_subscription(self, error):
        output, harness = push(*[(event(5 * n, 5 * n + 1), error) for n in range(3)], (shard_end(),))
        assert len(output.data) == 6
        starts = [position.sequence_number for position in harness.ports.positions]
        assert starts == [None, "1", "6", "11"]


def test_a_stopped_reader_does_not_end_the_shard():
    async def run():
        fake, output = FakeShard(*texts(5)), Output()
        metrics = ShardMetrics()
        options = {"on_poison": OnBadRecord.FAIL, "future_limit_ms": -1}
        decorator = BatchDecorator(
            BytesDeserializer(), ArrivalTimestamps(), BoundedOutOfOrderness(Properties()), metrics, **options
        )
        publisher = PollingRecordPublisher(
            fake, SHARD, BEGINNING, PollingConfig.of(Properties()), metrics, VirtualClock()
        )
        reading = asyncio.create_task(ShardConsumer(publisher, decorator, output).run())
        await asyncio.sleep(10)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        return output

    output = run_virtual(run())
    assert (output.data, output.ended) == (texts(5), None)
    assert output.batches[0].read_position == SequenceNumber("5")
