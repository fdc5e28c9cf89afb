"""Reads given shards from given positions up to bounds, without a job: for commands and for the tasks of Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recordpublisher.consumer.deserialization import Deserializer
from recordpublisher.fetcher.checkpoints.shard_starts import Starts
from recordpublisher.fetcher.checkpoints.snapshot_format import snapshot_to_json
from recordpublisher.fetcher.dependencies import FetcherDependencies
from recordpublisher.fetcher.pipeline.bounded_runs import BoundedResult, Bounds
from recordpublisher.fetcher.settings import FetcherSettings
from recordpublisher.fetcher.shard_fetcher import build_fetcher
from recordpublisher.fetcher.shards.discovery import ShardDiscovery
from recordpublisher.fetcher.shards.retention_check import RetentionCheck
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import Sink
from recordpublisher.fetcher.watermarks import OwnWatermark
from recordpublisher.publishers.base import RecordPublisher, RecordPublisherFactory, make_publisher
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.job_properties import LOOKAHEAD
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard, stream_name
from recordpublisher.publishers.user_code import close_or_leave

from ..host.build_from_properties import build_source, checked_publisher_class
from ..host.plugin_loading import load_registry
from .argument_checks import Assigner, batch_decorator_factory, check_bounded
from .shard_lister import ShardLister

NO_LISTING_MS = -1


class BoundedReader:
    """Reads shards up to bounds. Owns one publisher factory for all its reads; `close` it at the end.

    - `publisher`: overrides the property `flink.stream.recordpublisher`.
    - `deserializer`: overrides the property `flink.deserializer`.
    """

    def __init__(
        self,
        properties: Properties,
        publisher: str | None = None,
        clock: Clock | None = None,
        timestamp_assigner: Assigner | None = None,
        deserializer: Deserializer[Any] | None = None,
    ) -> None:
        registry = load_registry()
        made = checked_publisher_class(registry, properties, "to read from a position", publisher)
        self._clock = clock or SystemClock()
        check_bounded(properties)
        self._settings = FetcherSettings.of(properties.merged({LOOKAHEAD.key: None}))
        self._decorator_for = batch_decorator_factory(registry, properties, deserializer, timestamp_assigner)
        self._use_continuations = made.resumes_by_continuation
        self._factory = _SharedFactory(build_source(registry, properties, made, publisher))
        self._streams: dict[str, str] = {}
        self._lister = lister = ShardLister(self._factory.owned, properties, self._streams, self._clock)
        self._retention = RetentionCheck(
            lister.oldest_retained_ms, lister.oldest_record, self._factory.order_of, self._clock
        )

    async def read(
        self, shards: Mapping[Shard, ShardState], sink: Sink, bounds: Bounds, *, is_replay: bool = False
    ) -> BoundedResult:
        """Read these shards, each from its state, until a bound is met. No shards are discovered, and none waits for its parents.

        Batches reach the sink with event times and watermarks.

        - `is_replay`: whether the caller knows which records must be found. If so, the reader does not look for records past retention.

        Raises: DataLossError if records have passed retention unread, and errors of the reads and of the sink.
        """
        self._streams.update({shard.stream: shard.stream_arn or shard.stream for shard in shards})
        parts = self._parts(shards, sink, frozenset(shard.key for shard in shards))
        if not is_replay and not self._factory.owned.finds_gaps:
            parts = replace(parts, retention=self._retention)
        fetcher = build_fetcher(parts)
        await fetcher.open()
        try:
            return await fetcher.run_bounded(bounds)
        finally:
            await fetcher.close()

    async def list_shards(self, stream: str) -> list[Shard]:
        """Return every shard of a stream (a name or an ARN). If the publisher lists no shards itself, Kinesis is asked.

        Raises: StreamNotFoundError if there is no such stream; KinesisError if the call fails.
        """
        return await self._lister.list_shards(self._named(stream))

    async def server_time_ms(self, stream: str) -> int:
        """Return the time of the service's clock (epoch ms), or of this machine's clock if the publisher lists its shards itself.

        Raises: KinesisError if the call fails.
        """
        return await self._lister.server_time_ms(self._named(stream))

    def order_of(self, sequence_number: str) -> Any:
        """Return the value by which the publisher sorts a sequence number. Raises: the publisher's error if it cannot sort it."""
        return self._factory.order_of(sequence_number)

    async def close(self) -> None:
        """Close the publisher factory."""
        try:
            await close_or_leave(self._factory.owned, self._settings.drain_ms / 1000)
        finally:
            await self._lister.close()

    def _named(self, stream: str) -> str:
        name = stream_name(stream)
        self._streams.setdefault(name, stream)
        return name

    def _parts(self, shards: Mapping[Shard, ShardState], sink: Sink, keys: frozenset[str]) -> FetcherDependencies:
        streams = tuple(sorted({shard.stream for shard in shards}))
        return FetcherDependencies(
            factory=self._factory,
            discovery=ShardDiscovery(_FixedShardLister(list(shards)), streams, NO_LISTING_MS),
            sink=sink,
            tracker=OwnWatermark(),
            decorator_for=self._decorator_for,
            settings=self._settings,
            clock=self._clock,
            is_ours=lambda shard: shard.key in keys,
            starts=Starts(StartingPosition.trim_horizon()),
            pin_latest=self._lister.server_time_ms,
            use_continuations=self._use_continuations,
            restore=(snapshot_to_json({shard.key: state for shard, state in shards.items()}, None, 0),),
        )


class _FixedShardLister:
    """A shard lister that always returns the same shards."""

    def __init__(self, shards: list[Shard]) -> None:
        self._shards = shards

    async def list_shards(self, stream: str) -> list[Shard]:
        return [shard for shard in self._shards if shard.stream == stream]


class _SharedFactory(RecordPublisherFactory):
    """A factory that several fetchers use one after the other. Closing a fetcher does not close the factory."""

    def __init__(self, owned: RecordPublisherFactory) -> None:
        self.owned, self.keyless, self.ends_open_shards = owned, owned.keyless, owned.ends_open_shards

    @property
    def lists_shards(self) -> bool:
        return self.owned.lists_shards

    async def create(self, shard: Shard, starting_position: StartingPosition, metrics: ShardMetrics) -> RecordPublisher:
        return await make_publisher(self.owned, shard, starting_position, metrics)

    async def discover(self, stream: str) -> Sequence[Shard] | None:
        return await self.owned.discover(stream)

    def order_of(self, sequence: str) -> Any:
        return self.owned.order_of(sequence)
