"""A start that cannot read its streams does not end the process that reads them."""

import asyncio
import socket

import pytest

import recordpublisher as rp
from recordpublisher.local import LocalKinesis


def closed_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


async def handle(record):
    """Nothing to do."""


async def test_a_start_that_cannot_list_its_streams_does_not_fence_the_running_one(tmp_path):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        given = {**endpoint.properties(), "flink.state.uri": str(tmp_path / "state"), "flink.job.name": "job"}
        away = {**given, "aws.endpoint": f"http://127.0.0.1:{closed_port()}", "flink.job.max.outage": "500ms"}
        async with rp.DataFetcher("orders", given, sink=rp.MapSink(handle)) as running:
            reading = asyncio.create_task(running.run())

            with pytest.raises(rp.StreamNotFoundError):
                await opened("bills", given)
            with pytest.raises(rp.RecordPublisherError, match="ListShards"):
                await opened("orders", away)

            await running.checkpoint()  # no FencedError
            running.stop()
            await reading


async def opened(stream, given):
    async with rp.DataFetcher(stream, given, sink=rp.MapSink(handle)):
        pass
