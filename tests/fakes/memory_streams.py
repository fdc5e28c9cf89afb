"""A publisher of streams in memory, selected by property: for tests of the public API on a real event loop."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import recordpublisher as rp
from recordpublisher.plugins.host.plugin_loading import load_registry

PROPERTIES = {"flink.stream.recordpublisher": "MEMORY", "flink.stream.initpos": "TRIM_HORIZON"}
ARRIVAL = 1_700_000_000.25


class MemoryFactory(rp.RecordPublisherFactory):
    """The payloads of every shard; an exception among them is raised when it is reached. Shards are open unless `closed`."""

    shards: ClassVar[dict[str, list[bytes | Exception]]] = {}
    closed = False
    per_read = 3
    prepared: ClassVar[list[str]] = []

    def __init__(self, properties: rp.Properties) -> None:
        self.closes = 0

    def prepare(self, streams):
        MemoryFactory.prepared += streams

    async def create(self, shard, starting_position, metrics):
        return MemoryPublisher(shard, int(starting_position.sequence_number or -1) + 1)

    async def discover(self, stream):
        return [rp.Shard(stream, shard_id, closed=self.closed) for shard_id in self.shards]


class MemoryPublisher(rp.RecordPublisher):
    def __init__(self, shard: rp.Shard, index: int) -> None:
        self._shard = shard
        self._next = index

    async def run(self, consumer):
        factory, payloads = MemoryFactory, MemoryFactory.shards[self._shard.shard_id]
        while True:
            await asyncio.sleep(0.001)
            part = payloads[self._next : self._next + factory.per_read]
            failure = next((each for each in part if isinstance(each, Exception)), None)
            if failure is not None and part[0] is failure:
                raise failure
            part = part[: part.index(failure)] if failure is not None else part
            answered = await consumer(self._batch(part, len(payloads) - self._next - len(part)))
            self._next = self._next if answered is None else int(answered.sequence) + 1
            if factory.closed and self._next == len(payloads):
                return rp.RunResult.COMPLETE

    def _batch(self, part, behind):
        records = [rp.UserRecord(data, str(number), ARRIVAL, "key") for number, data in enumerate(part, self._next)]
        last = rp.SequenceNumber(records[-1].sequence_number) if records else None
        return rp.RecordBatch(self._shard, records, behind, last, raw_count=len(part), raw_bytes=sum(map(len, part)))


class Streams:
    """The plugin that registers the publisher."""

    @rp.hookimpl
    def recordpublisher_register_publishers(self, registry):
        registry.add("MEMORY", MemoryFactory)


def install(monkeypatch, shards: dict[str, list[bytes | Exception]], closed: bool = False) -> None:
    """Make `shards` the content of every stream until the test ends."""
    for module in ("runtime.data_fetcher", "runtime.bounded_reader", "positions.job_positions"):
        monkeypatch.setattr(f"recordpublisher.plugins.{module}.load_registry", lambda: load_registry([Streams()]))
    monkeypatch.setattr(MemoryFactory, "shards", shards)
    monkeypatch.setattr(MemoryFactory, "closed", closed)
    monkeypatch.setattr(MemoryFactory, "prepared", [])
