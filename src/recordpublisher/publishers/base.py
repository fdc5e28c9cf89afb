"""RecordPublisher and RecordPublisherFactory: what a plugin author implements. Read this file first. For queues: `queue/queue_source.py`.

A publisher reads one shard. It hands each batch to a consumer and waits. It resumes only from the position that the consumer returned
(FLIP-128's RecordPublisher in its final, merged form).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from .errors import PluginError, RecordPublisherError
from .positions import SequenceNumber, StartingPosition
from .properties.properties import Properties
from .records import RecordBatch
from .shard_metrics import ShardMetrics
from .shards import Shard
from .user_code import AsyncPort

if TYPE_CHECKING:
    from reactivex.abc import DisposableBase, ObserverBase

BatchConsumer = Callable[[RecordBatch], Awaitable[SequenceNumber | None]]
"""Takes a batch. Its awaitable is done when the next batch may be read, and returns the position to resume from (None: unchanged)."""


Check = Callable[[], Awaitable[str | None]]
"""What `doctor` asks before a job starts, without changing anything. Says in a few words what was found; None: it cannot be asked without
a change. Raises: an error that says what to do."""
Checks = Mapping[str, Check]
"""Checks by name, made in this order, one after the other. Where a check calls AWS, its name is the IAM action."""


class RunResult(Enum):
    """How a run ended."""

    COMPLETE = "the shard was read to its end"
    INCOMPLETE = "there is more: call run again"
    CANCELLED = "the publisher was stopped"


class RecordPublisher(AsyncPort, ABC):
    """Publishes one shard's records, in order, from a starting position. A plugin author implements `run`."""

    @abstractmethod
    async def run(self, consumer: BatchConsumer) -> RunResult:
        """Publish until something ends the run; the caller runs again after INCOMPLETE.

        Awaits `consumer(batch)` for every batch, empty ones included. The time this takes is the back-pressure: nothing is read
        meanwhile (P1, P6). The returned position is the only one to resume from.

        Raises: RecordPublisherError when no retry can help.
        """

    async def run_observed(self, consumer: BatchConsumer) -> RunResult:
        """`run`, with the observers of `subscribe` attached to the consumer. The fetcher calls this one.

        Observers see a batch before the consumer does. They see the end of the shard, and an error of the run.
        """

        def observed(batch: RecordBatch) -> Awaitable[SequenceNumber | None]:
            for observer in tuple(self._observers):
                observer.on_next(batch)
            return consumer(batch)

        try:
            result = await self.run(observed)
        except Exception as error:
            for observer in tuple(self._observers):
                observer.on_error(error)
            raise
        if result is RunResult.COMPLETE:
            for observer in tuple(self._observers):
                observer.on_completed()
        return result

    def set_read_budget(self, held_bytes: int) -> None:
        """Set how many bytes, as held in memory, the next batch may bring (P6). A hint, given before each read. Default: ignored."""

    def subscribe(self, observer: ObserverBase[RecordBatch]) -> DisposableBase:
        """Add an observer (FLIP-128's first method): it sees every batch, the end of the shard and a fatal error.

        It exerts no back-pressure and reads nothing by itself: `run_observed` drives. Disposing the returned Disposable removes it.
        """
        from reactivex.disposable import Disposable

        observers = self._observers
        observers.append(observer)
        return Disposable(lambda: observers.remove(observer) if observer in observers else None)

    @functools.cached_property
    def _observers(self) -> list[ObserverBase[RecordBatch]]:
        # made on first use, so that a plugin's `__init__` need not call ours
        return []


class RecordSource(AsyncPort, ABC):
    """What a job reads, by `flink.stream.recordpublisher`: shards (`RecordPublisherFactory`) or a queue (`QueueSource`). Built as
    `Source(properties)`; owns the clients and registrations of one job."""

    @classmethod
    def check(cls, properties: Properties, streams: Sequence[str]) -> None:
        """Check the properties before anything runs (C2). Raises: ConfigurationError for what this source cannot work with."""

    def prepare(self, streams: Sequence[str]) -> None:
        """Called once when the job is constructed, outside any event loop. EAGER registers here (F8)."""

    async def close(self) -> None:
        """Release what the source has opened. Called once, after every reader has stopped."""

    async def endpoint_url(self) -> str | None:
        """Where the source calls, for `recordpublisher doctor`. Default: None, for a source that does not tell."""
        return None

    def checks(self, stream: str) -> Checks:
        """What `recordpublisher doctor` asks of a stream that is not listed by Kinesis: whether it can be read. Nothing may be taken from
        it, and the job may be running. Default: nothing."""
        return {}


class RecordPublisherFactory(RecordSource):
    """Makes the publishers of one job. Owns what they share. Built as `Factory(properties)`."""

    resumes_by_continuation: ClassVar[bool] = False
    """Whether `create` may be given a ContinuationSequenceNumber as AFTER_SEQUENCE_NUMBER (fan-out, F6)."""

    @abstractmethod
    async def create(self, shard: Shard, starting_position: StartingPosition, metrics: ShardMetrics) -> RecordPublisher:
        """Make a publisher of `shard` that starts at `starting_position` and counts into `metrics`."""

    async def release(self, stream: str) -> None:
        """The job reads this stream no more, and its publishers have stopped; it may come back (S10). Release what was for it alone."""

    def keep_shared(self) -> None:
        """The job reads on, in other processes or after a restart: `close` must leave what it needs, such as a registered consumer (F8)."""

    async def discover(self, stream: str, after: str | None) -> Sequence[Shard] | None:
        """List the shards of `stream` after the shard id `after` (None: all), for sources that are not Kinesis.

        A factory without it, by default, leaves that to the job, which lists the stream's shards from Kinesis.
        """
        return None

    def order_of(self, sequence: str) -> Any:
        """A sort key for sequence numbers of one shard. Default: their decimal value, as in Kinesis."""
        return int(sequence)


async def own_shards(factory: RecordPublisherFactory, stream: str, after: str | None) -> list[Shard] | None:
    """What the factory lists; None: it leaves that to Kinesis. Raises: PluginError where its `discover` returns no list of shards."""
    if type(factory).discover is RecordPublisherFactory.discover:
        return None
    try:
        listed = await factory.discover(stream, after)
    except Exception as error:
        if not isinstance(error, RecordPublisherError):
            error.add_note(f"{type(factory).__name__}.discover failed for {stream}")
        raise
    if not isinstance(listed, Sequence) or not all(isinstance(shard, Shard) for shard in listed):
        raise PluginError(
            f"{type(factory).__name__}.discover returned {listed!r:.100} for {stream}: return a list of Shard, and [] for none"
        )
    return list(listed)


MAX_CLOCK_OFFSET_MS = 60_000
"""AWS refuses calls from five minutes on; a time of start would be wrong long before."""


def check_clock(now_ms: int, service_ms: int) -> str:
    """Compare this machine's clock with that of a service, which tells whole seconds. Raises: RecordPublisherError."""
    offset_ms = now_ms - service_ms
    if abs(offset_ms) > MAX_CLOCK_OFFSET_MS:
        direction = "ahead of" if offset_ms > 0 else "behind"
        raise RecordPublisherError(
            f"this machine is {abs(offset_ms) / 1000:.0f} s {direction} the service: set its clock"
        )
    return "as that of the service"
