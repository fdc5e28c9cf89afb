"""Where the calls about queues go, and that both transports make them without an SDK that knows them, over a socket."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.errors import ResourceNotFoundError
from recordpublisher.publishers.kinesis.access import queue_url
from recordpublisher.publishers.kinesis_queue import QueueClient

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
