"""Whole jobs over TLS whose connections are closed or lost inside a body: nothing is lost or repeated."""

import asyncio
import random

import boto3
import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread

from processes.live_job import LiveJob, split
from servers.certificates import self_signed
from servers.kinesis_conversation import open_conversation
from servers.tcp_relay import relay_to

ENDS = [200_000, 40_000, 17_000]
"""Bytes after which the first connections end: inside a body whose first records may be decoded already."""


@pytest.fixture
def certificate(tmp_path, monkeypatch):
    files = self_signed(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", files[0])
    return files


def kinesis_of(endpoint):
    session = boto3.Session(aws_access_key_id="local", aws_secret_access_key="local", region_name="us-east-1")
    return session.client("kinesis", endpoint_url=endpoint.url)


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
async def test_a_job_reads_every_record_once_and_in_order_through_a_split(publisher, certificate):
    with serve_in_thread() as endpoint, open_conversation(kinesis_of(endpoint), 2) as conversation:
        async with relay_to(endpoint.port, certificate) as relay:
            job = LiveJob(conversation, **{"flink.stream.recordpublisher": publisher, "aws.endpoint": relay.url})
            await job.run(split(0, 2**126))
            await job.run()
    assert job.read == job.sent
    assert job.open_shards == 3


@pytest.mark.slow
@pytest.mark.parametrize("politely", [True, False], ids=["close_notify", "cut"])
@pytest.mark.parametrize(
    ("publisher", "client", "ends"),
    [
        ("POLLING", "OWN", ENDS),
        ("POLLING", "SDK", ENDS),
        ("EFO", "OWN", ENDS[:1]),
    ],  # a subscription is opened again after 5 s
    ids=["polling", "polling by the SDK", "fan-out"],
)
async def test_bodies_that_end_in_the_middle_lose_and_repeat_nothing(publisher, client, ends, politely, certificate):
    rnd = random.Random(1)
    sent = [f"{n}:".encode() + rnd.randbytes(2_000) for n in range(600)]
    with serve_in_thread(streams={"orders": 1}) as endpoint:
        kinesis = kinesis_of(endpoint)
        for start in range(0, len(sent), 100):
            entries = [{"Data": data, "PartitionKey": "k"} for data in sent[start : start + 100]]
            kinesis.put_records(StreamName="orders", Records=entries)
        async with relay_to(endpoint.port, certificate) as relay:
            relay.end_after(ends, politely)
            properties = {
                "aws.endpoint": relay.url,
                "aws.region": "us-east-1",
                "aws.credentials.provider.basic.accesskeyid": "local",
                "aws.credentials.provider.basic.secretkey": "local",
                "aws.http.client": client,
                "flink.stream.initpos": "TRIM_HORIZON",
                "flink.stream.recordpublisher": publisher,
                "flink.stream.efo.consumername": "job",
                "flink.shard.getrecords.maxretries": 10,
            }
            sink = rp.MemorySink()
            async with rp.DataFetcher(["orders"], properties, sink=sink) as fetcher:
                running = asyncio.create_task(fetcher.run())
                async with asyncio.timeout(60):
                    while len(sink.records) < len(sent) and not running.done():  # noqa: ASYNC110 - the sink belongs to the job
                        await asyncio.sleep(0.05)
                fetcher.stop()
                await running
    assert [record.data for record in sink.records] == sent
    assert relay.ended == len(ends)
