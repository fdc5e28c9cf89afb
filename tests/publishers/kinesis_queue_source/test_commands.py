"""What the commands say of a job that reads a queue."""

import asyncio
import json

import pytest

import recordpublisher as rp
from recordpublisher.cli.commands.streams import stream_text
from recordpublisher.local import serve_in_thread
from recordpublisher.local.in_memory_transport import MemoryTransport
from recordpublisher.plugins.lag.job_state import effect_of_no_positions
from recordpublisher.publishers.kinesis.management import ManagementClient
from recordpublisher.publishers.kinesis_queue_source import QueueClient
from recordpublisher.testing import run_virtual

from fakes.queues.local_queue import ARN, LocalQueue
from processes.command_line import several_commands

pytestmark = pytest.mark.slow


async def create_queue(properties):
    async with QueueClient(rp.Properties(properties)) as client:
        await client._call("CreateStream", StreamName="orders", StreamModeDetails={"StreamMode": "ON_DEMAND"})
        await client.create_queue("work", await client.stream_arn("orders"), {"Type": "LATEST"}, 30)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    job = tmp_path_factory.mktemp("job") / "job.properties"
    with serve_in_thread() as served:
        given = served.properties()
        asyncio.run(create_queue(given))
        more = {"flink.stream.recordpublisher": "QUEUE", "flink.queue.name": "work", "flink.streams": "orders"}
        job.write_text("\n".join(f"{key}={value}" for key, value in {**given, **more, "flink.sink": "memory"}.items()))
        commands = {
            "doctor": ["doctor", str(job), "--json"],
            "lag": ["lag", str(job)],
            "check": ["lag", str(job), "--check"],
            "tail": ["tail", "orders", "--no-follow", "--properties", str(job)],
            "positions": ["positions", "show", str(job)],
        }
        return dict(zip(commands, several_commands(served, *commands.values()), strict=True))


def test_doctor_finds_the_queue_without_receiving_from_it(results):
    findings = {each["name"]: each for each in map(json.loads, results["doctor"].stdout.splitlines())}

    assert findings["orders: kinesis:ListQueues"]["verdict"] == "ok", results["doctor"].stdout
    assert not [each for each in findings.values() if each["verdict"] == "PROBLEM"]


def test_lag_says_where_to_ask(results):
    assert "the length of a queue is not known: ask the running job with --live" in results["lag"].stderr
    assert results["check"].returncode != 0


def test_commands_about_positions_are_refused(results):
    assert "this command needs positions, but a queue has none" in results["positions"].stderr


def test_a_described_stream_says_how_many_queues_it_has():
    async def find():
        queue = LocalQueue()
        await queue.open()
        await queue.call("CreateQueue", QueueName="work", StreamConfigurationList=[{"StreamARN": ARN}])
        transport = MemoryTransport(queue.account)
        async with ManagementClient(rp.Properties({"aws.region": "us-east-1"}), transport=transport) as client:
            return await client.describe("orders")

    described = run_virtual(find())
    assert described.queues == 1
    lines = [line.split() for line in stream_text(described).splitlines()]
    assert ["queues", "1"] in lines


def test_tail_takes_nothing_from_a_queue(results):
    assert "this command would take the records from the queue" in results["tail"].stderr


def test_no_positions_are_missed():
    assert effect_of_no_positions(None, rp.Properties({"flink.stream.recordpublisher": "QUEUE"})) == ""
