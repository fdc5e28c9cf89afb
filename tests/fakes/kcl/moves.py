"""Moves between a job and a lease table of the KCL in memory, and the records of its stream."""

import asyncio
import contextlib

from recordpublisher.plugins.positions.job_positions import JobPositions
from recordpublisher.plugins.positions.kcl_transfer import KclTransfer
from recordpublisher.publishers.kinesis.client import parse_shard

from servers.kpl_aggregates import aggregate

SHARDS = ["shardId-000000000000", "shardId-000000000001"]
WATCH_SECONDS = 20


class Listing:
    """Lists shards by a boto3 client."""

    def __init__(self, kinesis):
        self.kinesis = kinesis

    async def list_shards(self, stream):
        return [parse_shard(shard, stream, None) for shard in self.kinesis.list_shards(StreamName=stream)["Shards"]]

    async def list_live_shards(self, stream):
        return await self.list_shards(stream)

    async def server_time_ms(self, stream):
        return 1_700_000_000_000


class Mover:
    """Plans and applies transfers between the job and a table. `pause` runs between the two looks; `watched`: how long it is asked for."""

    def __init__(self, job, kinesis):
        self.job, self.kinesis = job, kinesis
        self.watched = WATCH_SECONDS

    @contextlib.asynccontextmanager
    async def transfer(self, table, pause, is_forced):
        async def watch(seconds):
            assert seconds == self.watched
            await asyncio.to_thread(pause)

        stream = self.job["flink.streams"]
        positions = JobPositions(self.job)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(positions.close)
            yield KclTransfer(
                positions, table, Listing(self.kinesis), [stream], self.job, WATCH_SECONDS, is_forced, pause=watch
            )

    def plan(self, direction, table, pause=lambda: None, is_forced=False, before_apply=None):
        async def run():
            async with self.transfer(table, pause, is_forced) as moving:
                plan = await (moving.plan_import() if direction == "import" else moving.plan_export())
                if before_apply is not None:
                    before_apply()
                    await (moving.apply_import(plan) if direction == "import" else moving.apply_export(plan))
                return plan

        return asyncio.run(run())

    def move(self, direction, table, is_forced=False, before_apply=lambda: None):
        return self.plan(direction, table, is_forced=is_forced, before_apply=before_apply)


def put_numbers(endpoint, stream, numbers):
    """Put numbers: in each shard an aggregate of five, then single records. Returns them."""
    model, numbers = endpoint.endpoint.stream(stream), list(numbers)
    for half in (0, 1):
        own, hash_key = numbers[half::2], half * 2**127
        together = aggregate(*[(f"k{number}", b"%d" % number, str(hash_key)) for number in own[:5]])
        for data in (together, *(b"%d" % number for number in own[5:])):
            endpoint.call(model.put, data, "key", hash_key)
    return numbers
