"""The classes that the author of a plugin implements: RecordPublisher and RecordPublisherFactory for shards, QueueSource for queues.

Read this file first. A publisher reads one shard. It passes each batch to a callback (the consumer), and waits for it. It resumes only from
the position that the callback returned (FLIP-128's RecordPublisher in its final, merged form).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

from .async_port import AsyncPort
from .errors import (
    ConfigurationError,
    ConsumerError,
    DeserializationError,
    FatalKinesisError,
    FencedError,
    ImpossibleStateError,
    PluginError,
    RecordPublisherError,
    SinkError,
    StateError,
    StoreUnavailableError,
)
from .positions import SequenceNumber, StartingPosition
from .properties.properties import Properties
from .records import RecordBatch, UserRecord
from .safe_text import repr_of
from .shard_metrics import ShardMetrics
from .shards import OldestRecord, Shard, stream_name
from .user_code import PluginCall, is_raised_in_user_code

if TYPE_CHECKING:
    from reactivex.abc import DisposableBase, ObserverBase

BatchConsumer = Callable[[RecordBatch], Awaitable[SequenceNumber | None]]
"""The callback that receives the batches of a shard. When it has returned, the publisher may read the next batch.

It returns the position to resume from, or None if the position does not change.
"""
Check = Callable[[], Awaitable[str | None]]
"""A check that `recordpublisher doctor` makes before a job starts. It changes nothing.

It returns a few words on what it found, or None if it could not check anything. It raises an error that says what to do.
"""
Checks = Mapping[str, Check]
"""Checks by name, in the order in which they are made. If a check calls AWS, its name is that of the IAM action."""
SequenceNumbers = Collection[str] | None
"""The sequence numbers of records. None means that there are none."""


class RecordPublisher(AsyncPort, ABC):
    """Reads the records of one shard, in order, from a starting position. A plugin author implements `run`."""

    @abstractmethod
    async def run(self, consumer: BatchConsumer) -> RunResult:
        """Pass the shard's records to `consumer` in batches, and return how the run ended. After INCOMPLETE the caller calls `run` again.

        Await `consumer(batch)` for every batch, even for an empty one, before the next read. This is the back-pressure. Resume only from
        the position that the consumer returned.

        Do not catch errors of the consumer, nor the cancellation of the task. If `run` catches an error of the consumer, the job ends with
        that error. If `run` does not end within `flink.job.drain.timeout` after its cancellation, the job continues without it.

        Raises: RecordPublisherError if no retry can help.
        """

    async def run_observed(self, consumer: BatchConsumer) -> RunResult:
        """Do the same as `run`, and pass each batch to the observers of `subscribe` before it goes to `consumer`.

        The fetcher calls this method.

        Observers are also notified of the end of the shard, and of an error of the run.
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
        """Called before each read, with the bytes of memory that the next batch may take. Use it as a hint. Default: do nothing."""

    def set_seen(self, seen_ms: int | None) -> None:
        """Called before the first run, with the time until which the shard was read (epoch ms). Default: do nothing.

        It is for publishers that look for lost records themselves (`finds_gaps`). The time is the arrival of the last record read, or the
        time of the last read at the tip, whichever is later. For a shard that was never read, it is a time at which its parents were open,
        or None if none of them was read.
        """

    def subscribe(self, observer: ObserverBase[RecordBatch]) -> DisposableBase:
        """Add an observer of every batch, the end of the shard and a fatal error (FLIP-128's first method).

        The observer exerts no back-pressure, and causes no read, because only `run_observed` reads. To remove it, call `dispose` of the
        result.
        """
        from reactivex.disposable import Disposable

        observers = self._observers
        observers.append(observer)
        return Disposable(lambda: observers.remove(observer) if observer in observers else None)

    @functools.cached_property
    def _observers(self) -> list[ObserverBase[RecordBatch]]:
        # The list is made at its first use, so that a plugin's `__init__` need not call the one of this class.
        return []


class RunResult(Enum):
    """How a run of a publisher ended."""

    COMPLETE = "the shard was read to its end"
    INCOMPLETE = "there is more: call run again"
    CANCELLED = "the publisher was stopped"


class RecordSource(AsyncPort, ABC):
    """A source that a job reads, chosen by `flink.stream.recordpublisher`: shards (`RecordPublisherFactory`) or a queue (`QueueSource`).

    It is built as `Source(properties)`, and owns the clients and registrations of one job.
    """

    @classmethod
    def wrapped(cls, properties: Properties) -> type[RecordSource]:
        """Return the class that reads the streams with these properties. Default: this class.

        A source that wraps another source returns the class of that source.
        """
        return cls

    @classmethod
    def check(cls, properties: Properties, streams: Sequence[str]) -> None:
        """Check the properties before anything runs. Default: do nothing.

        Raises: ConfigurationError if this source cannot work with a property.
        """

    def prepare(self, streams: Sequence[str]) -> None:
        """Called with the names of the job's streams, to prepare to read them. A queue has one stream. Default: do nothing.

        It is called once when the job is constructed, before the other methods and outside any event loop. With the registration EAGER,
        enhanced fan-out registers its consumers here. Some commands, and the tasks of Spark, read without a job and do not call this
        method. Then `create` and `discover` must make what they need.
        """

    async def close(self) -> None:
        """Release what the source has opened. Called once, after every reader has stopped."""

    async def endpoint_url(self) -> str | None:
        """Return the URL that the source calls, for `recordpublisher doctor`. Return None, the default, if it is unknown.

        A URL without a host, such as `file:///var/log`, is shown, and no connection is checked.
        """
        return None

    def checks(self, stream: str) -> Checks:
        """Return the checks by which `recordpublisher doctor` finds out whether a stream can be read. Default: no checks.

        Override this if Kinesis does not list the source's streams. If the source has shards, `doctor` also lists them. A check must not
        take a record from the stream, because the job may be running. `doctor` does not call `prepare` before.

        - `stream`: the stream as the job was given it: a name, an ARN or NAME=ARN.
        """
        return {}


class RecordPublisherFactory(RecordSource):
    """Makes the publishers of one job, and owns the resources that they share. It is built as `Factory(properties)`."""

    resumes_by_continuation: ClassVar[bool] = False
    """Whether `create` accepts a start AFTER_SEQUENCE_NUMBER with the ContinuationSequenceNumber of an event of enhanced fan-out."""

    finds_gaps: bool = False
    """Whether the publishers themselves find out that records have expired unread. If so, the job does not check for it.

    They raise DataLossError. With `flink.state.dataloss=CONTINUE` the job counts and logs the loss, and creates the publisher again. The
    new publisher starts at the oldest record, or at the error's `resume`.
    """

    keyless: bool = False
    """Whether records may have no partition key (None), as in a stream with AUTO record distribution."""

    ends_open_shards: bool = False
    """Whether a publisher may return COMPLETE for a shard that is still listed as open. A job then waits for later shards for ever.

    If False, such a COMPLETE is an error, because later records of the shard would never be read. Set True if the service itself reports
    the end of a shard, perhaps long before `discover` lists it as closed or with children. Then a job does not end when all listed shards
    are closed, because later shards may follow. If shards may end for good, leave it False, and return COMPLETE only for a shard that
    `discover` has returned as closed.
    """

    @property
    def lists_shards(self) -> bool:
        """Whether `discover` of this factory lists the shards.

        Otherwise Kinesis lists them. Default: whether the class overrides `discover`.
        """
        return type(self).discover is not RecordPublisherFactory.discover

    @abstractmethod
    async def create(self, shard: Shard, starting_position: StartingPosition, metrics: ShardMetrics) -> RecordPublisher:
        """Make a publisher of `shard` that starts at `starting_position` and counts into `metrics`."""

    async def release(self, stream: str) -> None:
        """Release the resources of a stream that the job no longer reads. Default: do nothing.

        The stream's publishers have stopped. The job may read the stream again later.
        """

    def keep_shared(self) -> None:
        """Called if `close` must keep shared resources, such as a registered consumer. Default: do nothing.

        The job then continues in other processes, or will be started again.
        """

    async def discover(self, stream: str) -> Sequence[Shard] | None:
        """List the shards of `stream`, for a source that is not Kinesis.

        The default implementation returns None. Then the job lists the stream's shards from Kinesis.

        It is called at the start, where every error ends the job, and then every `flink.shard.discovery.intervalmillis`. Errors of these
        later calls are handled in this way:

        - A TransientError is retried. An error of another library is retried for `flink.job.max.outage`, and then ends the job.
        - A ConfigurationError, FatalKinesisError or StateError ends the job at once, because no retry can help. A result that is not a list
          of shards also ends the job at once.
        - A shard that is missing counts as one whose records have expired unread, unless its end was read. A source whose shards go away
          lists them as `closed` for as long as a job may be stopped.
        - StreamNotFoundError is retried, and the job continues to read. If `discover` raises it for a minute, the stream counts as deleted.
          A job whose streams were all deleted ends.

        Raises: StreamNotFoundError if the stream does not exist, or was deleted.
        """
        return None

    async def unlisted_shards(self, stream: str, listed: Sequence[Shard]) -> Sequence[Shard]:
        """Return shards that the factory can read although the stream no longer lists them. Default: no shards.

        Each of them must have `closed` and `is_unlisted` set. They are added to each complete listing of the stream (`listed`). If a listed
        shard has the same id, the returned shard replaces it, because the service may have forgotten the shard's parents.
        """
        return ()

    async def oldest_record(self, shard: Shard) -> OldestRecord | None:
        """Return the oldest record that a shard still has, or None if that cannot be known (the default).

        It is not called for shards that Kinesis lists, because the job asks Kinesis itself.

        Raises: RecordPublisherError if the shard cannot be read now.
        """
        return None

    async def oldest_retained_ms(self, stream: str) -> int | None:
        """Return the arrival time of the oldest records that the stream still has (epoch ms), or None if that is unknown (the default).

        It is not called for streams that Kinesis lists, because the job asks Kinesis itself.

        Raises: RecordPublisherError if the time cannot be found now.
        """
        return None

    def order_of(self, sequence: str) -> Any:
        """Return a sort key for a sequence number. It must order the records of one shard. Default: the decimal value, as in Kinesis.

        Raises: ValueError if `sequence` cannot be ordered.
        """
        try:
            return int(sequence)
        except ValueError:
            name = type(self).__name__
            raise ValueError(
                f"the sequence number {sequence!r:.100} is not a whole number, so it cannot be ordered: override "
                f"`order_of` of {name}, which orders the sequence numbers of a shard"
            ) from None


class QueueSource(RecordSource):
    """Receives records from a queue, and acknowledges or releases each of them.

    A record that is not acknowledged is received again after `visibility_seconds`. A queue has no order, no positions, no shards and no
    watermarks. The job (`recordpublisher/queues`) keeps the received records; the source makes the calls. The author of a plugin implements
    four methods: `receive`, `acknowledge`, `prolong` and `release`.

    A received record is a subclass of `UserRecord` that also has what its acknowledgement needs. `sequence_number` is the record's id. It
    must be the same at each receipt, and never be used for another record. The sub-records of an aggregate share this number, have the
    sub-sequence numbers 0, 1 and so on, and come in one receive. The job ends if two different records have the same two numbers.

    `acknowledge`, `prolong` and `release` get each record once, with its newest receipt and without its data. They return the numbers of
    the records that failed, and the job counts them. A record that is gone is not a failure.

    If the whole call failed, these three methods raise TransientError, RetriesExhaustedError or another library's error. The job counts
    this too. Any other RecordPublisherError ends the job.
    """

    visibility_seconds: float = 30.0
    """How long a received record is hidden from other receivers (seconds). A source sets it to the value of its queue."""
    most_receivers: int = 1
    """How many calls of `receive` may run at a time. A job begins with one, and uses more if many records wait."""
    full_receive: int = 10
    """How many records one receive returns at most. If it returns this many, more records are probably waiting."""
    full_bytes: float = inf
    """How many payload bytes of one receive mean that more records are probably waiting. Set it if responses are limited in bytes."""

    async def open(self) -> None:
        """Find the queue, before the first receive. Raises: ConfigurationError if the queue does not exist. Default: do nothing."""

    @abstractmethod
    async def receive(self, metrics: ShardMetrics) -> Sequence[UserRecord]:
        """Wait up to 20 s for records, and return them as soon as there are some. If the queue stays empty, return nothing.

        A call that takes 30 s is logged. If the task is cancelled while a call is taking records, wait for the call, release its records,
        and then raise the cancellation.

        - `metrics`: counts the retries.

        Raises: TransientError if the queue cannot be reached now. The call is then retried for `flink.job.max.outage`. Any other error ends
        the job.
        """

    @abstractmethod
    async def acknowledge(self, records: Sequence[UserRecord]) -> SequenceNumbers:
        """Acknowledge records that the job has finished. Return the sequence numbers of the records that failed."""

    @abstractmethod
    async def prolong(self, records: Sequence[UserRecord]) -> SequenceNumbers:
        """Hide these records from other receivers for `visibility_seconds` from now, because the job still handles them.

        Return the sequence numbers of the records that failed.
        """

    @abstractmethod
    async def release(self, records: Sequence[UserRecord]) -> SequenceNumbers:
        """Make these records visible to other receivers now, because this process will not handle them.

        Return the sequence numbers of the records that failed. These become visible when their `visibility_seconds` are over.
        """


def check_source(source: type[RecordSource], properties: Properties, streams: Sequence[str]) -> None:
    """Check that a source can work with the properties and streams of a job, before anything runs.

    Raises: ConfigurationError if it cannot, such as a queue with several streams.
    """
    if issubclass(source, QueueSource) and len(streams) > 1:
        reason = "a queue has the records of one stream"
        raise ConfigurationError("streams", ", ".join(streams), "one stream", reason=reason)
    source.check(properties, streams)


async def make_publisher(
    factory: RecordPublisherFactory, shard: Shard, start: StartingPosition, metrics: ShardMetrics
) -> RecordPublisher:
    """Make a publisher of a shard. Raises: PluginError if the factory's `create` does not return one."""
    with PluginCall(factory, "create", shard.key):
        made: Any = await factory.create(shard, start, metrics)
    if not isinstance(made, RecordPublisher):
        raise PluginError(
            f"{type(factory).__name__}.create returned {repr_of(made)} for {shard.key}: return a RecordPublisher"
        )
    return made


async def oldest_record_of(factory: RecordPublisherFactory, shard: Shard) -> OldestRecord | None:
    """Return the oldest record that a shard still has, or None if the factory does not know it.

    Raises: PluginError if `oldest_record` of the factory returns something else.
    """
    with PluginCall(factory, "oldest_record", shard.key):
        found: Any = await factory.oldest_record(shard)
    if found is not None and not isinstance(found, OldestRecord):
        raise PluginError(
            f"{type(factory).__name__}.oldest_record returned {repr_of(found)} for {shard.key}: return an OldestRecord, or None"
        )
    return found


async def oldest_retained_of(factory: RecordPublisherFactory, stream: str) -> int | None:
    """Return the arrival time of the oldest records that the stream may still have (epoch ms), or None if the factory does not know it.

    Raises: PluginError if `oldest_retained_ms` of the factory returns something else.
    """
    with PluginCall(factory, "oldest_retained_ms", stream):
        found: Any = await factory.oldest_retained_ms(stream)
    if found is not None and (not isinstance(found, int) or isinstance(found, bool)):
        raise PluginError(
            f"{type(factory).__name__}.oldest_retained_ms returned {repr_of(found)} for {stream}: return epoch ms as an int, or None"
        )
    return found


async def shards_listed_by(factory: RecordPublisherFactory, stream: str) -> list[Shard] | None:
    """Return the shards that the factory lists, or None if the factory leaves the listing to Kinesis.

    Raises: PluginError if the factory's `discover` does not return a list of shards of this stream, each of them once.
    """
    if not factory.lists_shards:
        return None
    with PluginCall(factory, "discover", stream):
        listed = await factory.discover(stream)
    return _checked_shards(f"{type(factory).__name__}.discover", stream, listed)


async def with_unlisted(factory: RecordPublisherFactory, stream: str, listed: Sequence[Shard]) -> list[Shard]:
    """Return a stream's complete listing, with the shards of the factory's `unlisted_shards` added.

    Raises: PluginError if `unlisted_shards` does not return a list of shards of this stream, each of them once.
    """
    if type(factory).unlisted_shards is RecordPublisherFactory.unlisted_shards:
        return list(listed)
    what = f"{type(factory).__name__}.unlisted_shards"
    with PluginCall(factory, "unlisted_shards", stream):
        more = await factory.unlisted_shards(stream, listed)
    return list({shard.key: shard for shard in (*listed, *_checked_shards(what, stream, more))}.values())


def _checked_shards(what: str, stream: str, listed: Any) -> list[Shard]:
    if not isinstance(listed, Sequence) or not all(isinstance(shard, Shard) for shard in listed):
        raise PluginError(
            f"{what} returned {repr_of(listed)} for {stream}: return a list of Shard, or [] if there are none"
        )
    for shard in listed:
        if not isinstance(shard.shard_id, str) or not shard.shard_id or "/" in shard.shard_id:
            raise PluginError(
                f"{what} returned a shard of {stream} with the id {repr_of(shard.shard_id)}: an id is a text without `/`"
            )
        if isinstance(shard.parents, str):
            raise PluginError(
                f"{what} returned {shard.key} with `parents={shard.parents!r}`: write `parents=({shard.parents!r},)`"
            )
    twice = [shard_id for shard_id, count in Counter(shard.shard_id for shard in listed).items() if count > 1]
    other = [shard.key for shard in listed if shard.stream not in (stream, stream_name(stream))]
    if twice or other:
        wrong = f"{twice[0]!r} twice" if twice else f"{other[0]}, a shard of another stream,"
        raise PluginError(f"{what} returned {wrong} for {stream}: return each shard of this stream once")
    try:
        TopologicalSorter({shard.shard_id: shard.parents for shard in listed}).prepare()
    except CycleError as error:
        _, circle = error.args
        raise PluginError(
            f"{what} returned shards of {stream} whose parents form a cycle: {', '.join(circle)}. The parents of a shard are only the "
            "shards from which a split or a merge has made it"
        ) from None
    return list(listed)


MAX_CLOCK_OFFSET_MS = 60_000
"""The largest difference between this machine's clock and a service's clock that is accepted (ms).

AWS refuses calls only from five minutes on, but the time at which a job starts would be wrong long before.
"""


def check_clock(now_ms: int, service_ms: int) -> str:
    """Compare this machine's clock with a service's clock. Return the result in words, for `doctor`.

    The service's clock has a resolution of one second.

    Raises: RecordPublisherError if the clocks differ by more than `MAX_CLOCK_OFFSET_MS`.
    """
    offset_ms = now_ms - service_ms
    if abs(offset_ms) > MAX_CLOCK_OFFSET_MS:
        direction = "ahead of" if offset_ms > 0 else "behind"
        raise RecordPublisherError(
            f"this machine is {abs(offset_ms) / 1000:.0f} s {direction} the service: set its clock"
        )
    return "as that of the service"


DELETED_SECONDS = 60.0
"""How long `discover` must report a stream as missing before the stream counts as deleted (seconds).

A folder that is mounted again, or a database that is restored, is away for some seconds. The records of a deleted stream are gone, so
nothing is lost by waiting.
"""


def is_fault_of_plugin(error: Exception) -> bool:
    """Return whether an error of a listing is caused by the plugin's code or its properties, so that no retry can help."""
    # Only the exact class counts: its subclass for missing credentials may succeed later.
    is_final = type(error) is ConfigurationError or isinstance(error, _NO_RETRY_HELPS)
    is_its_own = (
        is_final and not isinstance(error, StoreUnavailableError) and is_raised_in_user_code(error, or_installed=True)
    )
    return is_its_own or isinstance(error, PluginError)


_NO_RETRY_HELPS = (
    ConsumerError,
    DeserializationError,
    FatalKinesisError,
    FencedError,
    ImpossibleStateError,
    SinkError,
    StateError,
)
