"""A third party's publisher of Amazon SQS, against moto over a socket: each message is acknowledged when it is safe."""

import asyncio
import sys
from contextlib import asynccontextmanager

import boto3
import pytest

import recordpublisher as rp
from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.plugins.host.registry import Claim, Owner
from recordpublisher.publishers.properties import declaration
from recordpublisher.testing import QueueSourceCase, QueueSourceContract

from processes.command_line import ROOT
from servers.moto_server import serve_moto

pytestmark = pytest.mark.slow
MESSAGES = [b"%d" % number for number in range(40)]


@pytest.fixture(scope="module")
def url():
    with serve_moto() as served:
        yield served


@pytest.fixture
def sqs(url, monkeypatch):
    monkeypatch.setattr(declaration, "_declared", dict(declaration._declared))  # the plugin declares its own in it
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "sample_queue"))
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "s", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    client = boto3.client("sqs", endpoint_url=url)
    yield client
    client.close()
    for name in [name for name in sys.modules if name.startswith("sample_queue")]:
        del sys.modules[name]


@pytest.fixture
def queue(sqs):
    made = sqs.create_queue(QueueName="work")["QueueUrl"]
    for start in range(0, len(MESSAGES), 10):
        entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(start, start + 10)]
        sqs.send_message_batch(QueueUrl=made, Entries=entries)
    yield made
    sqs.delete_queue(QueueUrl=made)


def left(sqs, queue):
    """How many messages are visible, and how many are in flight."""
    told = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    return int(told["ApproximateNumberOfMessages"]), int(told["ApproximateNumberOfMessagesNotVisible"])


def job(url, sink):
    from sample_queue.sqs import SqsQueue

    registry = load_registry()
    registry.publishers.claim(Claim("SQS", SqsQueue, Owner("sample-queue", "1.0.0")))
    given = {"flink.stream.recordpublisher": "SQS", "flink.sqs.endpoint": url}
    return rp.DataFetcher("work", given, sink=sink, registry=registry)


async def test_messages_are_written_and_then_acknowledged(url, sqs, queue):
    sink = rp.MemorySink()
    async with job(url, sink) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True, max_time=60)

    assert sorted(record.data for record in sink.records) == sorted(MESSAGES)
    assert left(sqs, queue) == (0, 0)


async def test_a_slow_message_is_the_only_one_that_is_not_acknowledged(url, sqs, queue):
    seen = asyncio.Event()

    async def handler(record):
        if record.data == b"7":
            for _ in range(200):
                if await asyncio.to_thread(left, sqs, queue) == (0, 1):
                    seen.set()
                    return
                await asyncio.sleep(0.05)

    async with job(url, rp.MapSink(handler, ordering="NONE")) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True, max_time=60)

    assert seen.is_set()
    assert left(sqs, queue) == (0, 0)


async def test_a_failing_job_releases_what_it_holds(url, sqs, queue):
    def handler(record):
        raise ValueError("bad")

    with pytest.raises(rp.SinkError):
        async with job(url, rp.MapSink(handler, retries=0, ordering="NONE", concurrency=2)) as fetcher:
            await fetcher.run_bounded(max_time=60)

    assert left(sqs, queue) == (40, 0)


class TestTheContract(QueueSourceContract):
    @pytest.fixture(autouse=True)
    def _queue(self, url, queue):
        self.given = rp.Properties({"flink.sqs.endpoint": url, "flink.sqs.visibility.timeout": 5})

    @asynccontextmanager
    async def open_case(self):
        from sample_queue.sqs import SqsQueue

        def start():
            source = SqsQueue(self.given)
            source.prepare(["work"])
            return source

        yield QueueSourceCase(start, MESSAGES)
