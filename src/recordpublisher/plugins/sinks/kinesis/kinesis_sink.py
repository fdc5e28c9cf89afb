"""KinesisSink: writes to a Kinesis stream, on its own or as the sink of a job."""

from __future__ import annotations  # the reference and help() show types by their names

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from recordpublisher.fetcher.metric_types import SinkMetric
from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext, State, Unfinished
from recordpublisher.plugins.tracing.provider import payload_with_context
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis.ports import WritingPort
from recordpublisher.publishers.properties.groups.kinesis_sink import SINK_STREAM
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import hash_key_from
from recordpublisher.publishers.stream_arns import stream_name

from .failed_records import FailedRecord
from .pending_record import PendingRecord, SourceShard, size_of
from .settings import KinesisSinkSettings, QueueLimit
from .statistics import KINESIS_SINK_METRICS
from .writer import KinesisWriter

MOST_WAITING = 16
"""States that wait for their records. A further one takes the place of the last, so their memory is bounded in an outage, too."""


class WrittenStates:
    """Owns the states of checkpoints whose records are not all written, each with its flush epoch, and the newest that may be stored."""

    def __init__(self, is_complete: Callable[[int], bool]) -> None:
        """`is_complete`: whether all records up to the end of an epoch are written."""
        self._is_complete = is_complete
        self._waiting: deque[tuple[int, State]] = deque()
        self._written: State | None = None

    def add(self, epoch: int, state: State) -> None:
        """Remember a state: it may be stored when this epoch is complete."""
        if len(self._waiting) == MOST_WAITING:
            self._waiting.pop()
        self._waiting.append((epoch, state))

    def newest(self) -> State:
        """The newest state that may be stored. Before there is any it has no shards: each is read again from where it was begun."""
        while self._waiting and self._is_complete(self._waiting[0][0]):
            self._written = self._waiting.popleft()[1]
        return {**self._waiting[-1][1], "shards": {}} if self._written is None else self._written

    def revoke(self, shards: Collection[str]) -> None:
        """Forget shards. What is queued of them is not written, and one that comes back begins at another position."""
        self._waiting = deque([(epoch, _without(shards, state)) for epoch, state in self._waiting])
        if self._written is not None:
            self._written = _without(shards, self._written)


def _without(shards: Collection[str], state: State) -> State:
    return {**state, "shards": {key: entry for key, entry in state["shards"].items() if key not in shards}}


PARTIAL_FLUSH_SECONDS = 1.0
"""Most records are acknowledged sooner. A slower stream would hold up the job's writes and hand-overs for longer."""


class KinesisSink(Sink):
    """Puts records into a stream, and waits while too many are not acknowledged (FLINK-9374, K1 to K4).

    On its own: `async with rp.KinesisSink("out", properties) as sink: await sink.put(b"...", partition_key="k")`. As the sink of a job it
    copies records with their keys, each at least once.

    `stream` is a name or an ARN; without it the stream is the property `flink.sink.kinesis.stream`. `queue_limit` bounds the records that
    are not acknowledged: a number, or a function of `SinkStatistics` that returns one. `ordering` is NONE or PER_KEY. With
    `fail_on_error=False` records that cannot be put go to `on_failure` (a function of `FailedRecord`, called on the event loop). Arguments
    override properties.

    Raises: ConfigurationError for every setting that is invalid.
    """

    def __init__(
        self,
        stream: str | Mapping[str, object],
        properties: Mapping[str, object] | None = None,
        *,
        queue_limit: QueueLimit | None = None,
        ordering: str | None = None,
        fail_on_error: bool | None = None,
        on_failure: Callable[[FailedRecord], None] | None = None,
        clock: Clock | None = None,
        port: WritingPort | None = None,
    ) -> None:
        name, given = _stream_and_properties(stream, properties)
        settings = KinesisSinkSettings.of(given, queue_limit, ordering, fail_on_error)
        self._context = SinkContext()
        self._stream = stream_name(name)
        with_context = payload_with_context(given)
        self._payload = _as_bytes if with_context is None else lambda data: with_context(_as_bytes(data))
        self._writer = KinesisWriter(port or _client(given, name), name, settings, clock or SystemClock(), on_failure)
        self._states = WrittenStates(self._writer.is_flushed)

    async def __aenter__(self) -> Self:
        try:
            await self._writer.open()
        except BaseException:
            await self._writer.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def put(self, data: bytes, partition_key: str, explicit_hash_key: str | None = None) -> None:
        """Accept one record; waits at the limit. A cancelled `put` did not accept its record.

        `partition_key` has 1 to 256 characters; `explicit_hash_key`, a decimal number below 2^128, decides the shard in its place.
        With `flink.tracing.context.field` a JSON object gets the current trace context of OpenTelemetry.

        Raises: SinkError for an invalid record, after `close`, and for records that failed since the last call; KinesisError when the
        service rejects every call; TypeError for data or keys of another type.
        """
        if type(partition_key) is not str or explicit_hash_key is not None:
            partition_key, explicit_hash_key = (
                _as_text(partition_key),
                explicit_hash_key and _as_text(explicit_hash_key),
            )
        await self._writer.put(self._payload(data), partition_key, explicit_hash_key)

    async def flush(self, checkpoint: Checkpoint | None = None) -> State | None:
        """Return when every record accepted before this call is acknowledged.

        A checkpoint that may be partial waits for a second at most: then it gets the newest state of which everything is acknowledged.

        Raises: as `put`.
        """
        if checkpoint is None:
            await self._writer.flush()
            return None
        epoch = self._writer.begin_flush()
        self._states.add(epoch, checkpoint.state)
        await self._writer.wait_until_flushed(epoch, PARTIAL_FLUSH_SECONDS if checkpoint.may_be_partial else None)
        return self._states.newest()

    async def close(self) -> None:
        """Flush and close the connections. Raises: as `put`, unless an earlier call has raised the error."""
        await self._writer.close()

    def metrics(self) -> dict[str, Any]:
        """`outstandingRecordsCount`, `backpressureCycles` and others, plain values; docs/reference/kinesis-sink-metrics.md (A1)."""
        return self._writer.metrics()

    def unfinished(self) -> Unfinished:
        """How many records are not acknowledged."""
        count = self.metrics()["outstandingRecordsCount"]
        return Unfinished(count, f"records not acknowledged: {count}")

    def exported_metrics(self) -> list[SinkMetric]:
        """The same, with type, unit and meaning."""
        values = self.metrics()
        return [SinkMetric(name, *words, values[name]) for name, words in KINESIS_SINK_METRICS.items()]

    async def open(self, context: SinkContext) -> State | None:
        """As the sink of a job: read the stream's limits and shards. Raises: StreamNotFoundError, and errors that retries cannot fix."""
        self._context = context
        await self._writer.open(context.may_write, context.request_checkpoint)
        return None

    def destination(self) -> str:
        """The stream."""
        return f"{type(self).__name__}, stream {self._stream}"

    async def write(self, batch: RecordBatch) -> None:
        """As the sink of a job: put the batch's records with their keys, in order. The job decides about one that cannot be put (S7)."""
        rejected: list[tuple[RecordBatch, str]] = []

        def reject(index: int, reason: str) -> None:
            rejected.append((batch.slice(index, index + 1), reason))

        source = self._writer.permission.source(batch.shard.key)
        await self._writer.put_all(_copies_of(batch.records, source), reject)
        await self._context.reject_all(rejected)

    def revoked(self, shards: Collection[str]) -> None:
        """As the sink of a job: send no more of these shards. What is queued of them counts as done."""
        self._writer.permission.revoke(shards)
        self._states.revoke(shards)


def _copies_of(records: Sequence[UserRecord], source: SourceShard) -> list[PendingRecord]:
    """The records to put from those that were read; nearly all have a key in ASCII and no explicit hash key."""
    return [
        PendingRecord(record.data, key, None, len(record.data) + len(key), source=source)
        if (key := record.partition_key) and record.explicit_hash_key is None and key.isascii()
        else _copy_of(record, source)
        for record in records
    ]


def _copy_of(record: UserRecord, source: SourceShard) -> PendingRecord:
    """A record to put from one that was read. Without a key (AUTO record distribution) the sequence number becomes the key.

    A producer can write any text as an explicit hash key into an aggregate; one that is no number below 2^128 has decided nothing.
    """
    key = record.partition_key or record.sequence_number
    explicit = None if record.explicit_hash_key is None else hash_key_from(record.explicit_hash_key)
    explicit_key = None if explicit is None else str(explicit)
    return PendingRecord(record.data, key, explicit_key, size_of(record.data, key), source=source)


def _stream_and_properties(
    stream: str | Mapping[str, object], properties: Mapping[str, object] | None
) -> tuple[str, Properties]:
    given = properties if isinstance(stream, str) else stream
    checked = given if isinstance(given, Properties) else Properties(given)
    if isinstance(stream, str):  # the properties of a job were checked by the job
        checked.check()
    name = stream if isinstance(stream, str) else checked.value(SINK_STREAM)
    if not name:
        raise ConfigurationError(SINK_STREAM.key, name, "the name or ARN of a stream")
    return name, checked


def _client(properties: Properties, stream: str) -> WritingPort:
    from recordpublisher.publishers.kinesis import KinesisClient

    return KinesisClient(properties, [stream])


def _as_bytes(data: object) -> bytes:
    if type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"the data of a record must be bytes, not {type(data).__name__}: encode it first")


def _as_text(key: object) -> str:
    """The key itself; of a subclass, as a member of an Enum of texts, its text: JSON knows no such class."""
    if isinstance(key, str):
        return str.__str__(key)
    raise TypeError(f"a key of a record must be str, not {type(key).__name__}: str({key!r:.100}) makes one")
