"""A scripted source on virtual time: shards as lists of records, read by a publisher that follows the contract (P1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from recordpublisher.consumer.deserialization import BytesDeserializer
from recordpublisher.consumer.event_time import FunctionTimestamps
from recordpublisher.consumer.shard_consumer import BatchDecorator
from recordpublisher.consumer.watermark_strategies import BoundedOutOfOrderness
from recordpublisher.fetcher.checkpoints.shard_starts import Starts
from recordpublisher.fetcher.dependencies import FetcherDependencies
from recordpublisher.fetcher.pipeline.bounded_runs import BoundedResult, Bounds
from recordpublisher.fetcher.settings import FetcherSettings
from recordpublisher.fetcher.shard_fetcher import ShardFetcher, build_fetcher
from recordpublisher.fetcher.shards.discovery import ShardDiscovery
from recordpublisher.fetcher.sink import Sink
from recordpublisher.fetcher.watermarks import OwnWatermark
from recordpublisher.publishers.base import RecordPublisher, RecordPublisherFactory, RunResult
from recordpublisher.publishers.errors import StreamNotFoundError
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import EPOCH_MS, VirtualClock


@dataclass
class ScriptedShard:
    """Records are event times (epoch ms); a closed shard ends with its children."""

    shard: Shard
    times: list[int] = field(default_factory=list)
    closed: bool = False
    children: tuple[Shard, ...] = ()

    def put(self, *times: int) -> None:
        self.times += times


class ScriptedSource(RecordPublisherFactory):
    """Every shard of a scripted stream; a read takes `latency` virtual seconds and brings at most `per_read` records."""

    def __init__(self, per_read: int = 10, latency: float = 0.2, *, arrives_when_timed: bool = False) -> None:
        self.arrives_when_timed = arrives_when_timed
        """A record's time is its arrival too; otherwise it arrives when it is read."""
        self.shards: dict[str, ScriptedShard] = {}
        self.per_read = per_read
        self.latency = latency
        self.created: list[tuple[str, StartingPosition]] = []
        self.failing: dict[str, Exception] = {}
        self.silent: set[str] = set()
        self.metrics: dict[str, ShardMetrics] = {}
        """What the readers of each shard count into."""
        self.deleted: set[str] = set()
        """Streams that do not exist (any more)."""
        self.unlisted: set[str] = set()
        """Shards that listings lack although they exist."""
        self.travel = 0.0
        """Virtual seconds between the state that a response describes and its arrival."""

    def add(self, shard_id: str, *times: int, parents: tuple[str, ...] = (), stream: str = "s") -> ScriptedShard:
        scripted = ScriptedShard(Shard(stream, shard_id, parents), list(times))
        self.shards[scripted.shard.key] = scripted
        return scripted

    def split(self, parent: str, *children: str, stream: str = "s") -> None:
        shards = tuple(self.add(child, parents=(parent,), stream=stream).shard for child in children)
        self.close_shard(parent, *shards, stream=stream)

    def close_shard(self, shard_id: str, *children: Shard, stream: str = "s") -> None:
        self.shards[f"{stream}/{shard_id}"].closed = True
        self.shards[f"{stream}/{shard_id}"].children = children

    async def create(self, shard: Shard, starting_position: StartingPosition, metrics: Any) -> RecordPublisher:
        self.created.append((shard.shard_id, starting_position))
        self.metrics[shard.key] = metrics
        return ScriptedPublisher(self, self.shards[shard.key], starting_position)

    async def list_shards(self, stream: str) -> list[Shard]:
        if stream in self.deleted:
            raise StreamNotFoundError(stream)
        listed = [each for each in self.shards.values() if each.shard.key not in self.unlisted]
        return [each.shard for each in listed if each.shard.stream == stream]

    async def shard_exists(self, shard: Shard) -> bool | None:
        return shard.key in self.shards


class ScriptedPublisher(RecordPublisher):
    def __init__(self, source: ScriptedSource, scripted: ScriptedShard, start: StartingPosition) -> None:
        self._source = source
        self._scripted = scripted
        self._next = 0 if start.sequence_number is None else int(start.sequence_number) + 1
        if start.timestamp_ms is not None:
            self._next = sum(time < start.timestamp_ms for time in scripted.times)
        assert start.type is not PositionType.LATEST

    async def run(self, consumer: Callable[[RecordBatch], Any]) -> RunResult:
        source, scripted = self._source, self._scripted
        while True:
            await asyncio.sleep(source.latency)
            if scripted.shard.stream in source.deleted:
                raise StreamNotFoundError(scripted.shard.stream)
            if scripted.shard.key in source.failing:
                raise source.failing[scripted.shard.key]
            if scripted.shard.key in source.silent:
                continue
            stop = min(self._next + source.per_read, len(scripted.times))
            numbered = [(number, scripted.times[number]) for number in range(self._next, stop)]
            is_end = scripted.closed and stop == len(scripted.times)
            batch = self._batch(numbered, len(scripted.times) - stop, is_end)
            if source.travel:
                await asyncio.sleep(source.travel)
            answered = await consumer(batch)
            self._next = int(answered.sequence) + 1 if answered is not None else self._next
            if is_end:
                return RunResult.COMPLETE

    def _batch(self, numbered: list[tuple[int, int]], behind: int, is_end: bool) -> RecordBatch:
        arrival, timed = VirtualClock().now_ms() / 1000, self._source.arrives_when_timed
        key = f"{self._scripted.shard.shard_id}-{{}}".format  # each record has a key of its own
        records = [
            UserRecord(str(time).encode(), str(number), time / 1000 if timed else arrival, key(number))
            for number, time in numbered
        ]
        last = SequenceNumber(str(numbered[-1][0])) if numbered else None
        children = self._scripted.children if is_end else ()
        size = sum(len(record.data) for record in records)
        return RecordBatch(self._scripted.shard, records, behind * 1000, last, children, len(records), size)


class RecordingSink(Sink):
    """Records rows as (shard id, event time); a write takes `cost` virtual seconds."""

    def __init__(self, cost: float = 0.0) -> None:
        self.rows: list[tuple[str, int]] = []
        self.watermarks: list[int] = []
        self.events: list[tuple[str, Any]] = []
        self.cost = cost
        self.flushed: list[Any] = []
        self.failure: Exception | None = None

    async def write(self, batch: RecordBatch) -> None:
        if self.cost:
            await asyncio.sleep(self.cost)
        if self.failure is not None:
            raise self.failure
        self.rows += [(batch.shard_id, int(data)) for data in batch.data]
        self.events.append(("write", (batch.shard_id, len(batch))))

    async def watermark(self, watermark: int) -> None:
        self.watermarks.append(watermark)
        self.events.append(("watermark", watermark))

    async def idle(self) -> None:
        self.events.append(("idle", None))

    async def flush(self, checkpoint: Any = None) -> None:
        self.flushed.append(checkpoint)


def make_fetcher(
    source: ScriptedSource, sink: Sink, properties: dict[str, Any] | None = None, **more: Any
) -> ShardFetcher:
    """A fetcher over a scripted source; event times are the payloads."""
    return build_fetcher(fetcher_dependencies(source, sink, properties, **more))


TIP = Bounds(stop_at_tip=True, max_time=600)


async def read(
    source: ScriptedSource, sink: Sink, bounds: Bounds = TIP, properties: dict[str, Any] | None = None, **more: Any
) -> tuple[ShardFetcher, BoundedResult]:
    """One run of a fetcher, from open to close."""
    fetcher = make_fetcher(source, sink, properties, **more)
    await fetcher.open()
    result = await fetcher.run_bounded(bounds)
    await fetcher.close()
    return fetcher, result


def fetcher_dependencies(
    source: Any, sink: Sink, properties: dict[str, Any] | None = None, **more: Any
) -> FetcherDependencies:
    """The dependencies of a fetcher over a scripted source."""
    given = Properties(
        {"flink.stream.initpos": "TRIM_HORIZON", "flink.watermark.future.limit": -1, **(properties or {})}
    )
    settings = FetcherSettings.of(given)

    async def pinned(stream: str) -> int:
        return EPOCH_MS

    def decorator(shard: Shard, metrics: ShardMetrics) -> BatchDecorator:
        times = FunctionTimestamps(lambda record: int(record.data))
        strategy = BoundedOutOfOrderness(given)
        return BatchDecorator(
            BytesDeserializer(), times, strategy, metrics, on_poison=OnBadRecord.FAIL, future_limit_ms=-1
        )

    parts: dict[str, Any] = {
        "factory": source,
        "discovery": ShardDiscovery(source, more.pop("streams", ("s",)), settings.discovery_interval_ms),
        "sink": sink,
        "tracker": OwnWatermark(),
        "decorator_for": decorator,
        "settings": settings,
        "clock": VirtualClock(),
        "starts": Starts(StartingPosition.trim_horizon()),
        "pin_latest": pinned,
        "shard_exists": getattr(source, "shard_exists", None),
        **more,
    }
    return FetcherDependencies(**parts)
