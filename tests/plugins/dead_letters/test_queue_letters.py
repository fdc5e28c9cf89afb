"""Dead letters of a queue: listed without being taken, restored, and discarded; by the commands, against the embedded endpoint."""

import asyncio
import json

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.kinesis.management import ManagementClient
from recordpublisher.publishers.kinesis_queue import QueueClient

from processes.command_line import several_commands

pytestmark = pytest.mark.slow


async def dead_queue(properties, served):
    """A queue with three dead letters."""
    async with ManagementClient(rp.Properties(properties)) as client:
        mode = {"StreamMode": "ON_DEMAND"}
        await client._call("CreateStream", StreamName="orders", StreamModeDetails=mode)
    async with QueueClient(rp.Properties(properties)) as client:
        stream = await client.stream_arn("orders")
        for payload in (b"one", b"two", b"\xff"):
            served.call(served.endpoint.account.find, "orders").put(payload, "k")
        start = [{"StreamARN": stream, "StartingPosition": {"Type": "TRIM_HORIZON"}}]
        dead = {"TargetType": "BUILT_IN", "MaxReceiveCount": 1}
        attributes = {"DeadLetterConfiguration": dead, "VisibilityTimeoutSeconds": 30}
        made = await client._call(
            "CreateQueue", QueueName="work", StreamConfigurationList=start, QueueAttributes=attributes
        )
        arn = made["QueueDescription"]["QueueARN"]
        while (await client.describe_queue(arn)).status != "ACTIVE":  # noqa: ASYNC110 - as a person would
            await asyncio.sleep(0.05)
        while received := await client.receive(arn, 1, 30):
            await client.settle("UpdateQueueRecordsVisibility", arn, [record.handle for record in received], 0)
        return arn


async def test_letters_are_listed_again_and_again_restored_and_dropped(tmp_path):
    with serve_in_thread() as served:
        given = served.properties()
        arn = await dead_queue(given, served)
        job = tmp_path / "job.properties"
        more = {"flink.stream.recordpublisher": "QUEUE", "flink.queue.name": "work", "flink.streams": "orders"}
        job.write_text("\n".join(f"{key}={value}" for key, value in {**given, **more}.items()))

        def dead_letters(*commands):
            given = [["dead-letters", words[0], str(job), *words[1:], "--queue"] for words in commands]
            return [done.stdout for done in several_commands(served, *given)]

        (listed,) = dead_letters(["list"])
        numbers = [row.split()[1] for row in listed.splitlines()[1:]]
        assert len(numbers) == 3
        shown, dropped, one, left, rest, none = dead_letters(
            ["show", numbers[0]],
            ["drop", numbers[0]],
            ["replay", "--only", numbers[1]],
            ["list"],
            ["replay"],
            ["list"],
        )
        assert json.loads(shown)["sequenceNumber"] == numbers[0]
        assert dropped == "Dropped: 1.\n"
        assert one == rest == "Replayed: 1. Failed again and kept: 0.\n"
        assert [row.split()[1] for row in left.splitlines()[1:]] == [numbers[2]]
        assert len(none.splitlines()) <= 1
        async with QueueClient(rp.Properties(given)) as client:
            back = [record.record_id for _ in range(2) for record in await client.receive(arn, 1, 30)]
        assert sorted(back) == sorted(numbers[1:])
