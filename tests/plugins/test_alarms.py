"""A2 through the face of the library, against the embedded endpoint: the tip is asked for with a real client."""

import asyncio

import recordpublisher as rp
from recordpublisher.plugins.local import LocalKinesis
from recordpublisher.plugins.manager import load_registry


class Lost:
    """A shard assigner that gives the second shard to a subtask that does not exist."""

    def __init__(self, properties):
        pass

    def __call__(self, shard, parallelism):
        return int(shard.shard_id[-1])


class Plugin:
    __name__ = "lost"

    @rp.hookimpl
    def recordpublisher_register_shard_assigners(self, registry):
        registry.add("LOST", Lost)


async def test_a_shard_that_nobody_owns_is_raised_and_one_that_is_read_is_not():
    heard, raised = [], asyncio.Event()

    def listener(alarm):
        heard.append(alarm)
        raised.set()

    async with LocalKinesis(streams={"orders": 2}) as endpoint:
        properties = {
            **endpoint.properties(),
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.alarm.interval": 1_000,
            "flink.shard.assigner": "LOST",
        }
        for half in range(2):
            endpoint.stream("orders").put(b"x", "key", half * 2**127)
        job = rp.DataFetcher(
            "orders", properties, sink=rp.MemorySink(), on_alarm=listener, registry=load_registry([Plugin()])
        )
        async with job:
            running = asyncio.create_task(job.run())
            async with asyncio.timeout(20):
                await raised.wait()
            metrics = job.metrics()
            job.stop()
            await running

    assert {(alarm.kind, alarm.subject, alarm.reason) for alarm in heard} == {
        (
            rp.AlarmKind.UNREAD,
            "orders/shardId-000000000001",
            "nobody owns it: it was given to subtask 1 of 1",
        )
    }
    assert metrics["subtask"]["alarms"] == 1
    assert 0 < metrics["shards"]["orders/shardId-000000000000"]["timeToRetentionLossMs"] <= 24 * 3_600_000
