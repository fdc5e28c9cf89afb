"""A queue on virtual time and the source that a third party would write for it: visibility, receive counts, faults."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from recordpublisher.consumer.deserialization import JsonDeserializer
from recordpublisher.consumer.event_time import ArrivalTimestamps
from recordpublisher.consumer.shard_consumer import BatchDecorator
from recordpublisher.consumer.watermark_strategies import BoundedOutOfOrderness
from recordpublisher.fetcher.pipeline.bounded_runs import BoundedResult, Bounds
from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.base import QueueSource
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard
from recordpublisher.queues.job import QueueJob, QueueJobParts, QueueSettings
from recordpublisher.testing.virtual_time import VirtualClock


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


class FakeSource(QueueSource):
    """Receives from the queue. A receive that is under way is never cut off: what it takes is released."""

    def __init__(self, queue: FakeQueue, receivers: int = 2, wait: float = 1.0) -> None:
        self.queue, self._wait = queue, wait
        self.visibility_seconds, self.most_receivers = queue.visibility, receivers

    async def receive(self, metrics: ShardMetrics) -> Sequence[UserRecord]:
        receiving = asyncio.ensure_future(self._take())
        try:
            return await asyncio.shield(receiving)
        except asyncio.CancelledError:
            with suppress(Exception):  # they come again after their time
                await self.release(await receiving)
            raise

    async def acknowledge(self, records: Sequence[UserRecord]) -> None:
        await asyncio.sleep(0.01)
        self.queue.call("acknowledge", records)

    async def prolong(self, records: Sequence[UserRecord]) -> None:
        await asyncio.sleep(0.01)
        self.queue.call("prolong", records)

    async def release(self, records: Sequence[UserRecord]) -> None:
        await asyncio.sleep(0.01)
        self.queue.call("release", records)

    async def _take(self) -> list[UserRecord]:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._wait
        while not (messages := self.queue.take(loop.time())) and loop.time() < until:  # noqa: ASYNC110 - a server that looks again and again
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.05)  # the response travels
        return [record for message in messages for record in _records(message)]


def _records(message: Message) -> Iterable[ReceivedRecord]:
    arrival, handle = VirtualClock().now_ms() / 1000, f"{message.number}/{message.receives}"
    for part in range(message.parts):
        sub = part if message.parts > 1 else -1
        yield ReceivedRecord(message.data, message.number, arrival, None, sub_sequence_number=sub, handle=handle)


def queue_job(
    queue: FakeQueue,
    sink: Sink,
    on_poison: OnBadRecord = OnBadRecord.FAIL,
    *,
    receivers: int = 2,
    properties: dict[str, Any] | None = None,
    source: QueueSource | None = None,
    **more: Any,
) -> QueueJob:
    """A job that receives from the queue, or from another source; values are JSON."""
    given = Properties(properties or {})

    def decorator(shard: Shard, metrics: ShardMetrics) -> BatchDecorator:
        values, times, strategy = JsonDeserializer(given), ArrivalTimestamps(), BoundedOutOfOrderness(given)
        return BatchDecorator(values, times, strategy, metrics, on_poison=on_poison, future_limit_ms=-1)

    return QueueJob(
        QueueJobParts(
            source=source or FakeSource(queue, receivers),
            stream="s",
            sink=sink,
            decorator_for=decorator,
            settings=replace(QueueSettings.of(given), on_poison=on_poison),
            clock=VirtualClock(),
            **more,
        )
    )


async def work(
    queue: FakeQueue, sink: Sink, bounds: Bounds | None = None, on_poison: OnBadRecord = OnBadRecord.FAIL, **more: Any
) -> tuple[QueueJob, BoundedResult]:
    """One run, to the tip unless other bounds are given."""
    job = queue_job(queue, sink, on_poison, **more)
    await job.open()
    try:
        return job, await job.run_bounded(bounds or Bounds(stop_at_tip=True, max_time=600))
    finally:
        await job.close()
