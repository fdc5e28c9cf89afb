"""Whole jobs on other servers. Streams are split, merged and scaled while they are read; nothing is lost, repeated or out of order.

Where the servers differ from the service, and how a job works around that, is in README.md here.
"""

from typing import Any

import pytest

from processes.live_job import HALF, LiveJob, merge, scale, split
from servers.kinesis_conversation import open_conversation

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]


async def test_kinesis_local_by_polling_through_every_kind_of_reshard(kinesis_local: Any):
    with open_conversation(kinesis_local, 1) as conversation:
        job = LiveJob(conversation)
        await job.run(split(0), merge(1, 2), scale(2), scale(4))
        await job.send()
        scale(2)(conversation)  # no job reads meanwhile
        await job.run(scale(4))

    assert job.read == job.sent
    assert job.open_shards == 4
    assert len(job.state["shards"]) >= 1 + 2 + 1 + 2 + 4 + 2 + 4


async def test_kinesis_local_by_fan_out_whose_responses_the_sdk_cannot_parse(kinesis_local: Any):
    with open_conversation(kinesis_local, 2) as conversation:
        job = LiveJob(conversation, **{"flink.stream.recordpublisher": "EFO"})
        await job.run(lambda conversation: None)

    assert job.read == job.sent


async def test_ministack_by_fan_out_through_splits_and_a_merge(ministack: Any):
    with open_conversation(ministack, 1) as conversation:
        job = LiveJob(conversation, **{"flink.stream.recordpublisher": "EFO"})
        await job.run(split(0), split(1, HALF // 2), merge(4, 2), reads_all=True)
        await job.send()
        await job.run()

    assert job.read == job.sent
    assert job.open_shards == 2


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
async def test_ours_through_every_kind_of_reshard(ours: Any, publisher: str):
    with open_conversation(ours, 1) as conversation:
        job = LiveJob(conversation, **{"flink.stream.recordpublisher": publisher})
        await job.run(split(0), merge(1, 2), scale(2), scale(4), scale(8))
        await job.send()
        scale(4)(conversation)
        await job.run(scale(8))

    assert job.read == job.sent
    assert job.open_shards == 8
