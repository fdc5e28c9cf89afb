"""RecordPublisher and RecordPublisherFactory: what a plugin author reads first.

A publisher reads one shard. It hands each batch to a consumer, waits, and goes on from the position that the consumer answers, and from
nothing else (FLIP-128's RecordPublisher in its final, merged form).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from .positions import SequenceNumber, StartingPosition
from .properties.properties import Properties
from .records import RecordBatch
from .shard_metrics import ShardMetrics
from .shards import Shard

if TYPE_CHECKING:
    from reactivex.abc import DisposableBase, ObserverBase

BatchConsumer = Callable[[RecordBatch], Awaitable[SequenceNumber | None]]
"""Takes a batch, returns when the next may be read, answers the position to go on from (None: unchanged)."""


class RunResult(Enum):
    """How a run ended."""

    COMPLETE = "the shard was read to its end"
    INCOMPLETE = "there is more: call run again"
    CANCELLED = "the publisher was told to stop"


class RecordPublisher(ABC):
    """Publishes one shard's records, in order, from a starting position."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "run" in cls.__dict__:
            cls.run = _tapped(cls.run)  # type: ignore[method-assign, assignment]

    @abstractmethod
    async def run(self, consumer: BatchConsumer) -> RunResult:
        """Publish until something ends the run; the caller runs again after INCOMPLETE.

        Awaits `consumer(batch)` for every batch, empty ones included: how long it takes is the back-pressure, and nothing is read
        meanwhile (P1, P6). The answered position is the only one to continue from.

        Raises: RecordPublisherError when no retry can help.
        """

    def offer_room(self, held_bytes: int) -> None:  # noqa: B027 - optional on purpose
        """The owner's hint before a read: how many bytes, as held in memory, the next batch may bring (P6). Default: ignored."""

    def subscribe(self, observer: ObserverBase[RecordBatch]) -> DisposableBase:
        """Tap the publisher (FLIP-128's first method): the observer sees every batch, the end of the shard, a fatal error.

        A tap exerts no back-pressure: `run` drives. Disposing the returned Disposable removes the tap.
        """
        from reactivex.disposable import Disposable

        taps = self._taps
        taps.append(observer)
        return Disposable(lambda: taps.remove(observer) if observer in taps else None)

    @functools.cached_property
    def _taps(self) -> list[ObserverBase[RecordBatch]]:
        return []


class RecordPublisherFactory(ABC):
    """Makes the publishers of one job and owns what they share (clients, registrations). Built as `Factory(properties)`."""

    resumes_by_continuation: ClassVar[bool] = False
    """Whether `create` may be given a ContinuationSequenceNumber as AFTER_SEQUENCE_NUMBER (fan-out, F6)."""

    @classmethod  # noqa: B027 - optional on purpose
    def check(cls, properties: Properties, streams: Sequence[str]) -> None:
        """Cross-checks before anything runs (C2). Raises: ConfigurationError for what this publisher cannot work with."""

    def prepare(self, streams: Sequence[str]) -> None:  # noqa: B027 - optional on purpose
        """Called once at the job's construction with its streams (names or ARNs), outside any loop: EAGER registers here (F8)."""

    @abstractmethod
    async def create(self, shard: Shard, starting_position: StartingPosition, metrics: ShardMetrics) -> RecordPublisher:
        """A publisher of `shard` that starts at `starting_position` and counts into `metrics`."""

    async def close(self) -> None:  # noqa: B027 - optional on purpose
        """Release what the publishers share. Called once, after every publisher has stopped."""

    async def discover(self, stream: str, after: str | None) -> list[Shard] | None:
        """The shards of `stream` listed after the shard id `after` (None: all), for sources that are not Kinesis.

        Default: None, which means that the job lists the stream's shards from Kinesis.
        """
        return None

    def order_of(self, sequence: str) -> Any:
        """A sort key for sequence numbers of one shard. Default: their decimal value, as Kinesis has it."""
        return int(sequence)


class _Tap:
    """A consumer that shows each batch to the publisher's observers first."""

    def __init__(self, publisher: RecordPublisher, consumer: BatchConsumer) -> None:
        self._publisher = publisher
        self._consumer = consumer

    def __call__(self, batch: RecordBatch) -> Awaitable[SequenceNumber | None]:
        for observer in tuple(self._publisher._taps):
            observer.on_next(batch)
        return self._consumer(batch)


def _tapped(run: Callable[..., Awaitable[RunResult]]) -> Callable[..., Awaitable[RunResult]]:
    """Wrap a `run` so that observers see batches, the end and fatal errors, once even when a subclass calls super."""

    @functools.wraps(run)
    async def tapped(self: RecordPublisher, consumer: BatchConsumer) -> RunResult:
        if isinstance(consumer, _Tap):
            return await run(self, consumer)
        try:
            result = await run(self, _Tap(self, consumer))
        except Exception as error:
            for observer in tuple(self._taps):
                observer.on_error(error)
            raise
        if result is RunResult.COMPLETE:
            for observer in tuple(self._taps):
                observer.on_completed()
        return result

    return tapped
