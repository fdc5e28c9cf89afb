"""Alarms of a whole job against the embedded endpoint, where a real client measures the tips (A2)."""

import asyncio

import recordpublisher as rp
from recordpublisher.local import LocalKinesis


async def test_a_shard_of_a_missing_subtask_raises_an_alarm_and_one_that_is_read_does_not():
    heard, raised = [], asyncio.Event()

    def listener(alarm):
        heard.append(alarm)
        raised.set()

    async with LocalKinesis(streams={"orders": 2}) as endpoint:
        properties = {
            **endpoint.properties(),
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.alarm.interval": 1_000,
        }
        for half in range(2):
            endpoint.stream("orders").put(b"x", "key", half * 2**127)
        job = rp.DataFetcher("orders", properties, sink=rp.MemorySink(), on_alarm=listener, subtask=0, parallelism=2)
        async with job:
            running = asyncio.create_task(job.run())
            async with asyncio.timeout(60):
                await raised.wait()
            metrics = job.metrics()
            job.stop()
            await running

    assert {(alarm.kind, alarm.subject, alarm.reason) for alarm in heard} == {
        (
            rp.AlarmKind.UNREAD,
            "orders/shardId-000000000001",
            "its owner, subtask 1, has not joined",
        )
    }
    assert metrics["subtask"]["alarms"] == 1
    assert 0 < metrics["shards"]["orders/shardId-000000000000"]["timeToRetentionLossMs"] <= 24 * 3_600_000
