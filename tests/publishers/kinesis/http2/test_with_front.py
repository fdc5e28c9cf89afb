"""Fan-out over HTTP/2, through hypercorn in front of the embedded endpoint."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from recordpublisher.local import StreamFault
from recordpublisher.publishers.errors import KinesisError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from servers.event_frames import initial_response
from servers.fanout_endpoint import FIRST, Job, endpoint_with, opened
from servers.fast_time import run_fast
from servers.http2.front import front_of
from servers.scripted_kinesis import refusal, stub_and_client
from servers.tcp_relay import relay_to

HTTP2 = {"aws.http.protocol.version": "HTTP2"}


@asynccontextmanager
async def job_through(url, endpoint, shards=1):
    """A job whose shards are read while the block runs."""
    job = Job(endpoint, **HTTP2, **{"aws.endpoint": url})
    tasks = [asyncio.create_task(job.read(job.shard(f"shardId-{number:012d}"))) for number in range(shards)]
    try:
        yield job
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await job.factory.close()


@pytest.mark.parametrize(("allowed", "connections"), [(100, 1), (2, 2)])
def test_f1_shards_are_read_over_as_few_connections_as_the_front_allows(allowed, connections):
    async def main():
        async with endpoint_with(4) as endpoint, front_of(endpoint.url, allowed) as front:
            async with job_through(front.url, endpoint, 4) as job:
                for number in range(4):
                    endpoint.stream("orders").put(b"%d" % number, "key", number * 2**126)
                await job.until(lambda: len(job.data) == 4)
                assert sorted(job.data) == ["0", "1", "2", "3"]
                assert "2" in front.versions
                assert (len(front.clients), len(set(front.clients))) == (4, connections)
            assert (opened(endpoint), front.open) == (0, 0)

    run_fast(main())


def test_f2_f3_a_lost_connection_causes_neither_gap_nor_duplicate():
    async def main():
        async with (
            endpoint_with(2) as endpoint,
            front_of(endpoint.url) as front,
            relay_to(front.port) as relay,
            job_through(f"http://127.0.0.1:{relay.port}", endpoint, 2) as job,
        ):
            for number in range(6):
                endpoint.stream("orders").put(b"%d" % number, "key", number % 2 * 2**127)
                if number % 2:
                    await job.until(lambda count=number + 1: len(job.data) == count)
                    relay.cut()
            endpoint.stream("orders").put(b"6", "key")
            await job.until(lambda: len(job.data) == 7)
            assert [number for number in job.data if int(number) % 2] == ["1", "3", "5"]
            assert sorted(job.data) == list("0123456")
            assert relay.cuts >= 6
            assert job.metrics[FIRST].retries >= 3

    run_fast(main())


@pytest.mark.parametrize("fault", [StreamFault.CUT, StreamFault.TRUNCATE, StreamFault.CORRUPT, StreamFault.SILENT])
def test_f3_f5_reading_continues_after_any_fault_behind_the_front(fault):
    async def main():
        async with (
            endpoint_with() as endpoint,
            front_of(endpoint.url) as front,
            job_through(front.url, endpoint) as job,
        ):
            stream = endpoint.stream("orders")
            stream.put(b"before", "key")
            await job.until_read("before")
            endpoint.faults.fail_subscription(fault)
            await asyncio.sleep(1)
            stream.put(b"after", "key")
            await job.until_read("before", "after")
            assert job.metrics[FIRST].resubscribes == 1

    run_fast(main())


async def test_f1_an_unread_subscription_does_not_stall_another_one():
    shards = [Shard("orders", f"shardId-{number:012d}") for number in range(2)]
    async with endpoint_with(2) as endpoint, front_of(endpoint.url) as front:
        stream = endpoint.stream("orders")
        for number in range(160):
            stream.put(b"%d" % number + bytes(50_000), "key", (number % 2) * 2**127)
        async with KinesisClient(Properties({**endpoint.properties(), **HTTP2, "aws.endpoint": front.url})) as client:
            arn = await consumer_of(endpoint, client)
            unread, read = [
                await client.subscribe_to_shard(arn, shard, StartingPosition.trim_horizon()) for shard in shards
            ]
            assert len(set(front.clients)) == 1
            for subscription, first in (
                (read, 1),
                (unread, 0),
            ):  # one is read to its end while the other is unread; then the other is complete, too
                numbers = []
                while len(numbers) < 80:
                    numbers += [int(record.data.rstrip(b"\0")) for record in (await anext(subscription)).records]
                    assert unread._response.unacknowledged_bytes <= 128 * 1024
                assert numbers == list(range(first, 160, 2))


async def consumer_of(endpoint, client):
    arn = await client.stream_arn("orders")
    consumer = await client.register_consumer(arn, "app")
    async with asyncio.timeout(60):
        while (await client.describe_consumer(arn, "app")).status != "ACTIVE":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return consumer.arn


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("ResourceInUseException", 400),
        ("ResourceNotFoundException", 400),
        ("LimitExceededException", 400),
        ("AccessDeniedException", 400),
        ("InternalFailure", 500),
    ],
)
async def test_f3_refusals_are_the_same_errors_over_both_protocols(code, status):
    async with stub_and_client() as (stub, client), front_of(stub.url) as front:
        stub.script("SubscribeToShard", *[refusal(code, "because", status)] * 2, [initial_response()])
        properties = {
            "aws.credentials.provider.basic.accesskeyid": "x",
            "aws.credentials.provider.basic.secretkey": "y",
        }
        over = Properties({**properties, **HTTP2, "aws.endpoint": front.url, "aws.region": "eu-west-1"})
        async with KinesisClient(over) as over_http2:
            errors = []
            for one in (client, over_http2):
                with pytest.raises(KinesisError) as raised:
                    await one.subscribe_to_shard("arn", Shard("orders", FIRST), StartingPosition.trim_horizon())
                errors.append(raised.value)
            assert (type(errors[0]), str(errors[0])) == (type(errors[1]), str(errors[1]))
            assert code in str(errors[1])
            await over_http2.subscribe_to_shard("arn", Shard("orders", FIRST), StartingPosition.trim_horizon())
            assert len(front.clients) == 2
