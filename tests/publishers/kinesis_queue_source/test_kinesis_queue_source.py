"""Where the calls about queues go, and that both transports make them without an SDK that knows them, over a socket."""

import asyncio
import json

import msgspec
import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.local.in_memory_transport import MemoryTransport
from recordpublisher.publishers.aggregation.kpl_format import encode_aggregate
from recordpublisher.publishers.errors import FatalKinesisError, ResourceNotFoundError, RetriesExhaustedError
from recordpublisher.publishers.kinesis.client import TRANSPORTS
from recordpublisher.publishers.kinesis.codec import decode_read
from recordpublisher.publishers.kinesis.endpoints import queue_url
from recordpublisher.publishers.kinesis_queue_source import KinesisQueue, QueueClient, ReceivedRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.queues.local_queue import PROPERTIES, LocalQueue

ARN = "arn:aws:kinesis:eu-west-1:000000000000:queue/0a1b2c"


@pytest.mark.parametrize(
    ("url", "api", "arn", "expected"),
    [  # botocore 1.44.8, endpoint-rule-set-1
        (
            "https://kinesis.eu-west-1.amazonaws.com/",
            "ListQueues",
            None,
            "https://kinesis-queues.eu-west-1.amazonaws.com/",
        ),
        (
            "https://kinesis.eu-west-1.amazonaws.com",
            "ReceiveQueueRecords",
            ARN,
            "https://0a1b2c.data-kinesis-queues.eu-west-1.amazonaws.com",
        ),
        (
            "https://kinesis-fips.us-east-1.amazonaws.com",
            "DescribeQueue",
            ARN,
            "https://0a1b2c.control-kinesis-queues-fips.us-east-1.amazonaws.com",
        ),
        ("http://127.0.0.1:4567/", "ReceiveQueueRecords", ARN, "http://127.0.0.1:4567/"),
    ],
)
def test_queues_have_hosts_of_their_own(url, api, arn, expected):
    assert queue_url(url, api, arn) == expected


@pytest.mark.parametrize("http_client", ["OWN", "SDK"])
async def test_both_transports_make_the_calls(http_client):
    with serve_in_thread() as served:
        properties = rp.Properties({**served.properties(), "aws.http.client": http_client})
        async with QueueClient(properties) as client:
            mode = {"StreamMode": "ON_DEMAND"}
            await client._call("CreateStream", StreamName="orders", StreamModeDetails=mode)
            arn = await client.stream_arn("orders")
            served.call(served.endpoint.account.find, "orders").put(b"\xff data", "k")
            made = await client.create_queue("work", arn, {"Type": "TRIM_HORIZON"}, 30)
            while (await client.describe_queue(made.arn)).status != "ACTIVE":  # noqa: ASYNC110 - as a person would
                await asyncio.sleep(0.05)
            (record,) = await client.receive(made.arn, 1, 30)

            assert (record.data, record.partition_key, record.receives) == (b"\xff data", "k", 1)
            assert await client.settle("UpdateQueueRecordsVisibility", made.arn, [record.handle], 0) == {}
            (again,) = await client.receive(made.arn, 1, 30)
            assert (again.record_id, again.receives) == (record.record_id, 2)
            assert set(await client.settle("AcknowledgeQueueRecords", made.arn, [record.handle])) == {record.handle}
            assert await client.settle("AcknowledgeQueueRecords", made.arn, [again.handle]) == {}
            assert [queue.name for queue in await client.queues_of(arn)] == ["work"]
            with pytest.raises(ResourceNotFoundError):
                await client.describe_queue(made.arn + "x")


async def test_through_a_proxy_every_call_is_made(monkeypatch):
    """The endpoint is also the proxy: it answers requests for any host."""
    with serve_in_thread(allow_remote=True) as served:
        monkeypatch.setenv("HTTP_PROXY", served.url)
        properties = rp.Properties({**served.properties(), "aws.endpoint": "http://kinesis.invalid"})
        async with QueueClient(properties) as client:
            mode = {"StreamMode": "ON_DEMAND"}
            await client._call("CreateStream", StreamName="orders", StreamModeDetails=mode)
            arn = await client.stream_arn("orders")
            assert [await client.queues_of(arn) for _ in range(2)] == [[], []]
            with pytest.raises(ResourceNotFoundError):
                await client.describe_queue(ARN)


async def test_in_gov_cloud_the_host_with_fips_is_called_where_it_is_set(monkeypatch):
    """There the host of shards has the same name with FIPS and without. The proxy only says which host it was asked for."""
    asked = []

    async def refuse(reader, writer):
        asked.append((await reader.readline()).split()[1])
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", "true")
        basic = "aws.credentials.provider.basic."
        keys = {f"{basic}accesskeyid": "x", f"{basic}secretkey": "y"}
        async with QueueClient(rp.Properties({"aws.region": "us-gov-west-1", **keys})) as client:
            with pytest.raises(rp.TransientError):
                await client.describe_queue("arn:aws-us-gov:kinesis:us-gov-west-1:000000000000:queue/0a1b2c")
    assert asked == [b"0a1b2c.control-kinesis-queues-fips.us-gov-west-1.amazonaws.com:443"]


async def test_the_region_of_the_stream_decides_where_queues_are():
    with serve_in_thread(region="eu-west-1") as served:
        elsewhere = {"aws.endpoint": "http://127.0.0.1:9", "aws.region": "us-east-1", "aws.request.timeout": 2000}
        given = {**served.properties(), **elsewhere, "aws.endpoint.eu-west-1": served.url}
        stream = "arn:aws:kinesis:eu-west-1:000000000000:stream/orders"
        async with QueueClient(rp.Properties(given), [stream]) as client:
            assert await client.queues_of(stream) == []


def test_an_eager_job_creates_its_queue_when_it_is_made():
    with serve_in_thread() as served:

        async def queues():
            async with QueueClient(rp.Properties(served.properties())) as client:
                arn = await client.stream_arn("orders")
                return [(queue.name, queue.status) for queue in await client.queues_of(arn)]

        async def create():
            async with QueueClient(rp.Properties(served.properties())) as client:
                await client._call("CreateStream", StreamName="orders", StreamModeDetails={"StreamMode": "ON_DEMAND"})

        asyncio.run(create())
        given = {"flink.stream.recordpublisher": "QUEUE", "flink.queue.name": "work", "flink.queue.create": "EAGER"}
        rp.DataFetcher("orders", {**served.properties(), **given}, sink=rp.MemorySink())

        assert asyncio.run(queues()) == [("work", "ACTIVE")]


# Records of a queue are acknowledged by calls of ten, each of which may fail alone; on virtual time.


def settled(fault, records=300):
    """What the acknowledgement of so many records returned or raised, how many calls it made, and how many records the queue still has."""
    calls = []

    class CountingTransport(MemoryTransport):
        async def call(self, api, **parameters):
            calls.append(api)
            return await super().call(api, **parameters)

    async def run():
        queue = LocalQueue()
        await queue.open()
        token = TRANSPORTS.set(lambda: CountingTransport(queue.account))
        try:
            few = {"flink.queue.visibility.timeout": "300", "flink.shard.getrecords.maxretries": "3"}
            source = KinesisQueue(rp.Properties({**PROPERTIES, **few}))
            source.prepare(["orders"])
            await source.open()
            queue.put(*(b"%d" % number for number in range(records)))
            received = []
            while got := await source.receive(ShardMetrics()):
                received += got
            assert len(received) == records
            calls.clear()
            queue.account.faults.start_random(fault, seed=1)
            try:
                found = await source.acknowledge(received)
            except rp.RecordPublisherError as error:
                found = error
            await source.close()
        finally:
            TRANSPORTS.reset(token)
        (real,) = queue.account.queues.all()
        return found, calls.count("AcknowledgeQueueRecords"), len(real.deliveries.unacknowledged)

    return run_virtual(run())


def test_a_call_that_is_throttled_is_repeated_alone():
    failed, calls, left = settled("throttle@AcknowledgeQueueRecords=0.1")

    assert (failed, left) == (set(), 0)
    assert 30 < calls < 45


def test_of_calls_that_fail_to_the_end_only_their_own_records_count_as_failed():
    failed, _, left = settled("throttle@AcknowledgeQueueRecords=0.9")

    assert 0 < len(failed) == left < 300


def test_when_every_call_fails_to_the_end_the_error_is_raised():
    error, _, left = settled("throttle@AcknowledgeQueueRecords=1", records=30)

    assert isinstance(error, RetriesExhaustedError)
    assert left == 30


# What becomes of received records when the receiver ends before the job has them, and of answers that no queue gives.


class TwoRecords:
    """A queue that delivers the records "old" and "new" at each receive. `settling`: what happens in the next acknowledgement."""

    def __init__(self, settling=None):
        self.settling = settling
        self.receives = 0
        self.is_settling = asyncio.Event()
        self.settled = []
        self.data = {}

    async def receive(self, arn, wait_seconds, visibility_seconds):
        self.receives += 1
        return [
            ReceivedRecord(f"{name}-{self.receives}", name, self.data.get(name, b"x"), 1.0, self.receives)
            for name in ("old", "new")
        ]

    async def settle(self, api, arn, handles, visibility_seconds=None):
        if api == "AcknowledgeQueueRecords":
            self.is_settling.set()
            settling, self.settling = self.settling, None
            if isinstance(settling, Exception):
                raise settling
            await asyncio.sleep(settling or 0)
        self.settled += handles
        return {}

    async def close(self):
        pass


def source_of(queue):
    source = KinesisQueue({"aws.region": "us-east-1"}, client=queue, clock=VirtualClock())
    source._arn = "arn"
    return source


def numbers(records):
    return [record.sequence_number for record in records]


def test_a_record_of_a_receive_that_is_cancelled_before_it_hands_over_is_visible_at_once():
    async def test():
        queue = TwoRecords(settling=5)
        queue.data = {"old": encode_aggregate([])}
        receiving = asyncio.create_task(source_of(queue).receive(ShardMetrics()))
        await queue.is_settling.wait()
        receiving.cancel()
        await asyncio.wait([receiving])

        assert receiving.cancelled()
        assert queue.settled == ["old-1", "new-1"]

    run_virtual(test())


def test_a_record_of_a_receive_whose_empty_aggregates_cannot_be_acknowledged_is_visible_at_once():
    async def test():
        queue = TwoRecords(FatalKinesisError("AcknowledgeQueueRecords", "AccessDenied", ""))
        queue.data = {"old": encode_aggregate([])}
        with pytest.raises(FatalKinesisError):
            await source_of(queue).receive(ShardMetrics())

        assert queue.settled == ["old-1", "new-1"]

    run_virtual(test())


def test_an_aggregate_without_records_is_acknowledged_when_it_is_received():
    """Nobody is given anything of it, so nobody would acknowledge it: it would come again and again."""

    async def test():
        queue = TwoRecords()
        queue.data = {"old": encode_aggregate([])}

        assert numbers(await source_of(queue).receive(ShardMetrics())) == ["new"]
        assert queue.settled == ["old-1"]

    run_virtual(test())


@pytest.mark.parametrize("arrival", [1e300, -1e300, 253_402_300_800])
def test_an_answer_with_a_time_of_arrival_that_no_date_can_be_is_malformed(arrival):
    record = {"Data": "eA==", "SequenceNumber": "1", "ApproximateArrivalTimestamp": arrival}
    with pytest.raises(msgspec.ValidationError, match="ApproximateArrivalTimestamp"):
        decode_read(json.dumps({"Records": [record], "MillisBehindLatest": 0}).encode())
    received = {"ReceiptHandle": "h", "RecordId": "r", "ReceiveCount": 1, **record}
    with pytest.raises(msgspec.ValidationError, match="ApproximateArrivalTimestamp"):
        msgspec.convert(received, ReceivedRecord)
