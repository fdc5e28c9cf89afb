"""Everything that a fetcher receives from its caller."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recordpublisher.publishers.base import RecordPublisherFactory
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.positions import StartingPosition

from ..consumer.shard_consumer import BatchDecorator
from ..publishers.polling.publisher import TipDistance
from ..publishers.shard_metrics import ShardMetrics
from ..publishers.shards import Shard
from .alarms import AlarmListener
from .checkpoints.shard_starts import AloneWorkerPort, Starts
from .settings import FetcherSettings
from .shards.discovery import ShardDiscovery, ShardExists, StreamList
from .shards.retention_check import RetentionCheck
from .sink import Sink, State, Traced, untraced
from .watermarks import WatermarkTracker


@dataclass(frozen=True, slots=True)
class FetcherDependencies:
    """Everything that a fetcher needs. plugins/runtime/data_fetcher.py builds it from properties, and tests build it from fakes.

    - `starts`: where shards without a stored position begin. A group uses only `starts.default`.
    - `pin_latest`: returns the service's time (epoch ms), which replaces LATEST.
    - `use_continuations`: whether publishers resume by ContinuationSequenceNumber.
    - `retention`: finds records that expired unread. None if the source does not report which records it still has.
    - `tip`: returns whether a shard has records after a position, or None if that is unknown. Used for metrics and alarms.
    - `retention_ms`: returns how long a stream keeps its records, or None if that is unknown. Used for metrics and alarms.
    - `shard_exists`: returns whether the source still has a shard that a listing lacks. If it returns None (unknown), the shard counts as
      gone after several listings without it.
    - `is_endless`: returns whether the stream always has an open shard, as Kinesis streams do. A run that reads such a stream continues
      when the listed shards have ended.
    - `on_alarm`: called with each alarm.
    - `alone`: the worker of a job that runs alone; it stores the positions, and commits the rows of a `CommittingSink`.
    - `check_owner`: raises FencedError if a newer process of the job owns the positions.
    - `is_ours`: returns whether this fetcher reads a shard of the listing.
    - `dead_letters`: the sink for records that cannot be used.
    - `job_name`: `flink.job.name`, if it is set.
    - `value_type`: the type of the values, if they have one (`SinkContext`).
    - `value_types`: the types of the values by stream, if each stream has a deserializer of its own.
    - `traced`: puts a tracing span around a call that handles records.
    """

    factory: RecordPublisherFactory
    discovery: ShardDiscovery
    sink: Sink
    tracker: WatermarkTracker
    decorator_for: Callable[[Shard, ShardMetrics], BatchDecorator]
    settings: FetcherSettings
    clock: Clock
    starts: Starts
    pin_latest: Callable[[str], Awaitable[int]]
    use_continuations: bool = False
    retention: RetentionCheck | None = None
    tip: Callable[[Shard, StartingPosition], Awaitable[TipDistance | None]] | None = None
    retention_ms: Callable[[str], Awaitable[int | None]] | None = None
    shard_exists: ShardExists | None = None
    is_endless: Callable[[str], bool] = lambda stream: False
    on_alarm: AlarmListener | None = None
    alone: AloneWorkerPort | None = None
    check_owner: Callable[[], Awaitable[None]] | None = None
    dead_letters: Sink | None = None
    traced: Traced = untraced
    restore: tuple[State, ...] = ()
    is_ours: Callable[[Shard], bool] = lambda shard: True
    job_name: str | None = None
    value_type: Any = None
    value_types: Mapping[str, Any] = field(default_factory=dict)

    @property
    def storing_worker(self) -> AloneWorkerPort | None:
        """The worker that stores a snapshot at each checkpoint.

        None if nothing is stored, or if the positions are committed with the rows.
        """
        return self.alone if self.alone is not None and self.alone.counts is None else None

    @property
    def committing_worker(self) -> AloneWorkerPort | None:
        """The worker that commits the rows of a `CommittingSink` with the positions; None for other sinks."""
        return self.alone if self.alone is not None and self.alone.counts is not None else None

    @property
    def streams(self) -> StreamList:
        """The streams that are read now."""
        return self.discovery.streams
