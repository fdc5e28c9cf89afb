"""A job on a real server: a DataFetcher reads a stream while a producer writes to it and reshards it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import recordpublisher as rp

from servers.kinesis_conversation import Conversation

SLOTS = 8
RECORDS_PER_STEP = 3 * SLOTS
TIMEOUT_SECONDS = 60
HALF = 1 << 127


class LiveJob:
    """Owns a producer and the runs of one fetcher. Records are spread over slots of the hash keys, and numbered in each slot."""

    def __init__(self, conversation: Conversation, **properties: object) -> None:
        self.conversation = conversation
        self.sink = rp.MemorySink()
        self.sent: dict[str, list[str]] = {str(slot): [] for slot in range(SLOTS)}
        self.state: dict[str, Any] | None = None
        self.properties = {
            "aws.endpoint": conversation.kinesis.meta.endpoint_url,
            "aws.region": "us-east-1",
            "aws.credentials.provider.basic.accesskeyid": "local",
            "aws.credentials.provider.basic.secretkey": "local",
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.shard.discovery.intervalmillis": 500,
            "flink.stream.efo.consumername": "job",
            **properties,
        }

    async def run(self, *steps: Callable[[Conversation], object], reads_all: bool = False) -> None:
        """Run the fetcher once: send records before each step and after the last. `reads_all`: everything is read before each step."""
        async with rp.DataFetcher(
            [self.conversation.stream], self.properties, sink=self.sink, restore=self.state
        ) as fetcher:
            running = asyncio.create_task(fetcher.run())
            for step in steps:
                await self.send()
                if reads_all:
                    await self.wait_until_all_is_read(running)
                await asyncio.to_thread(step, self.conversation)
            await self.send()
            await self.wait_until_all_is_read(running)
            fetcher.stop()
            await running
            self.state = fetcher.snapshot()

    async def send(self) -> None:
        """Send some records into every slot, in order."""
        await asyncio.to_thread(self._send)

    async def wait_until_all_is_read(self, running: asyncio.Task[Any]) -> None:
        """Wait; fail when the job ends, or after the timeout."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(self.sink.records) < sum(map(len, self.sent.values())):
                assert not running.done(), running
                await asyncio.sleep(0.05)

    @property
    def read(self) -> dict[str, list[str]]:
        """What was written to the sink, by slot, in order."""
        slots: dict[str, list[str]] = {slot: [] for slot in self.sent}
        for record in self.sink.records:
            slots[record.data.decode().split(":")[0]].append(record.data.decode())
        return slots

    @property
    def open_shards(self) -> int:
        """Shards that the last snapshot holds open."""
        assert self.state is not None
        return sum(not entry.get("ended", False) for entry in self.state["shards"].values())

    def _send(self) -> None:
        for number in range(RECORDS_PER_STEP):
            slot = number % SLOTS
            text = f"{slot}:{len(self.sent[str(slot)])}"
            self.conversation.put(text, slot * 2 * HALF // SLOTS + 1)
            self.sent[str(slot)].append(text)


def split(number: int, at: int = HALF) -> Callable[[Conversation], None]:
    """Split the shard of that number before a hash key."""
    return lambda conversation: conversation.reshard(
        "split_shard", ShardToSplit=shard_id(number), NewStartingHashKey=str(at)
    )


def merge(low: int, high: int) -> Callable[[Conversation], None]:
    """Merge two adjacent shards."""
    return lambda conversation: conversation.reshard(
        "merge_shards", ShardToMerge=shard_id(low), AdjacentShardToMerge=shard_id(high)
    )


def scale(target: int) -> Callable[[Conversation], None]:
    """Double or halve the stream, as an on-demand stream does by itself."""

    def run(conversation: Conversation) -> None:
        conversation.kinesis.update_shard_count(
            StreamName=conversation.stream, TargetShardCount=target, ScalingType="UNIFORM_SCALING"
        )
        conversation.wait_active()

    return run


def shard_id(number: int) -> str:
    return f"shardId-{number:012d}"
