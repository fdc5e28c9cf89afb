"""A queue on virtual time and the publisher that a third party would write for it: visibility, receive counts, faults."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from recordpublisher.consumer.deserialization import JsonDeserializer
from recordpublisher.consumer.event_time import ArrivalTimestamps
from recordpublisher.consumer.shard_consumer import BatchDecorator
from recordpublisher.consumer.watermark_strategies import BoundedOutOfOrderness
from recordpublisher.fetcher.assembly import build_fetcher
from recordpublisher.fetcher.pipeline.bounds import BoundedResult, Bounds
from recordpublisher.fetcher.sink import Sink
from recordpublisher.fetcher.subtask_fetcher import SubtaskFetcher
from recordpublisher.publishers.base import BatchConsumer, RecordPublisher, RecordPublisherFactory, RunResult
from recordpublisher.publishers.properties.groups.bad_records import OnBadRecord
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import HashRange, Shard
from recordpublisher.testing.virtual_time import VirtualClock

from fakes.scripted_source import fetcher_dependencies


class ReceivedRecord(UserRecord):
    """A record with what acknowledges it."""

    handle: str = ""


@dataclass
class Message:
    """One record of the queue; `parts`: as the parts of an aggregate."""

    number: str
    data: bytes
    parts: int = 1
    visible_at: float = 0.0
    receives: int = 0


class FakeQueue:
    """Owns the messages that are not acknowledged, and what happened. `failures`: errors that the next calls of a name raise, in turn."""

    def __init__(self, visibility: float = 8.0) -> None:
        self.visibility = visibility
        self.messages: dict[str, Message] = {}
        self.acknowledged: list[str] = []
        self.released: list[str] = []
        self.prolonged: list[str] = []
        self.late: list[str] = []
        """Acknowledged with a handle that was not the newest."""
        self.failures: dict[str, list[Exception]] = {}

    def put(self, *numbers: int, data: bytes | None = None, parts: int = 1) -> None:
        for number in numbers:
            payload = str(number).encode() if data is None else data
            self.messages[str(number)] = Message(str(number), payload, parts)

    def take(self, now: float, limit: int = 10) -> list[Message]:
        """What is visible, which is hidden then."""
        taken = [message for message in self.messages.values() if message.visible_at <= now][:limit]
        for message in taken:
            message.visible_at = now + self.visibility
            message.receives += 1
        return taken

    def hidden(self, now: float) -> list[str]:
        return [message.number for message in self.messages.values() if message.visible_at > now]

    def call(self, name: str, records: Sequence[UserRecord]) -> None:
        if self.failures.get(name):
            raise self.failures[name].pop(0)
        now = asyncio.get_running_loop().time()
        for record in records:
            assert isinstance(record, ReceivedRecord)
            number, message = record.sequence_number, self.messages.get(record.sequence_number)
            {"acknowledge": self.acknowledged, "release": self.released, "prolong": self.prolonged}[name].append(number)
            if message is None or record.handle != f"{number}/{message.receives}":
                self.late.append(number)
            elif name == "acknowledge":
                del self.messages[number]
            else:
                message.visible_at = now + (self.visibility if name == "prolong" else 0.0)


class QueuePublisher(RecordPublisher):
    """One receiver. A receive that is under way is never cut off: what it takes is released."""

    def __init__(self, queue: FakeQueue, shard: Shard, wait: float) -> None:
        self._queue, self._shard, self._wait = queue, shard, wait

    async def run(self, consumer: BatchConsumer) -> RunResult:
        while True:
            receiving = asyncio.ensure_future(self._receive())
            try:
                batch = await asyncio.shield(receiving)
            except asyncio.CancelledError:
                with suppress(Exception):  # they come again after their time
                    await self.release((await receiving).records)
                raise
            await consumer(batch)

    async def acknowledge(self, records: Sequence[UserRecord]) -> None:
        await asyncio.sleep(0.01)
        self._queue.call("acknowledge", records)

    async def prolong(self, records: Sequence[UserRecord]) -> None:
        await asyncio.sleep(0.01)
        self._queue.call("prolong", records)

    async def release(self, records: Sequence[UserRecord]) -> None:
        await asyncio.sleep(0.01)
        self._queue.call("release", records)

    async def _receive(self) -> RecordBatch:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._wait
        while not (messages := self._queue.take(loop.time())) and loop.time() < until:  # noqa: ASYNC110 - a server that looks again and again
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.05)  # the response travels
        records = [record for message in messages for record in _records(message)]
        size = sum(len(message.data) for message in messages)
        return RecordBatch(self._shard, records, None if records else 0, raw_count=len(messages), raw_bytes=size)


def _records(message: Message) -> Iterable[ReceivedRecord]:
    arrival, handle = VirtualClock().now_ms() / 1000, f"{message.number}/{message.receives}"
    for part in range(message.parts):
        sub = part if message.parts > 1 else -1
        yield ReceivedRecord(message.data, message.number, arrival, None, sub_sequence_number=sub, handle=handle)


class QueueFactory(RecordPublisherFactory):
    """Several receivers of one queue."""

    visibility_seconds = 8.0

    def __init__(self, queue: FakeQueue, receivers: int = 2, wait: float = 1.0) -> None:
        self.queue, self._receivers, self._wait = queue, receivers, wait
        self.visibility_seconds = queue.visibility

    async def create(self, shard: Shard, starting_position: Any, metrics: ShardMetrics) -> RecordPublisher:
        return QueuePublisher(self.queue, shard, self._wait)

    async def discover(self, stream: str, after: str | None) -> list[Shard]:
        ids = [f"receiver-{number}" for number in range(self._receivers)]
        return [Shard(stream, each, hash_range=HashRange(0, 0)) for each in ids if after is None or each > after]

    async def list_shards(self, stream: str, after: str | None = None) -> list[Shard]:
        return await self.discover(stream, after)

    def order_of(self, sequence: str) -> Any:
        return sequence


def queue_fetcher(
    queue: FakeQueue, sink: Sink, on_poison: OnBadRecord = OnBadRecord.FAIL, **more: Any
) -> SubtaskFetcher:
    """A fetcher that receives from the queue; values are JSON."""
    given = Properties({})

    def decorator(shard: Shard, metrics: ShardMetrics) -> BatchDecorator:
        values, times, strategy = JsonDeserializer(given), ArrivalTimestamps(), BoundedOutOfOrderness(given)
        return BatchDecorator(values, times, strategy, metrics, on_poison=on_poison, future_limit_ms=-1)

    factory = QueueFactory(queue, more.pop("receivers", 2))
    return build_fetcher(fetcher_dependencies(factory, sink, decorator_for=decorator, **more))


async def work(
    queue: FakeQueue, sink: Sink, bounds: Bounds | None = None, on_poison: OnBadRecord = OnBadRecord.FAIL, **more: Any
) -> tuple[SubtaskFetcher, BoundedResult]:
    """One run, to the tip unless other bounds are given."""
    fetcher = queue_fetcher(queue, sink, on_poison, **more)
    await fetcher.open()
    try:
        return fetcher, await fetcher.run_bounded(bounds or Bounds(stop_at_tip=True, max_time=600))
    finally:
        await fetcher.close()
