"""A sink that writes to a Kinesis stream, on its own or as the sink of a job."""

from __future__ import annotations  # the reference and help() show types by their names

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from recordpublisher.fetcher.metric_types import SinkMetric
from recordpublisher.fetcher.monitoring.readiness import FAILED_READ_LIMIT_MS
from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext, State, Unfinished
from recordpublisher.plugins.only_async_with import OnlyAsyncWith
from recordpublisher.plugins.runtime.argument_checks import checked_properties
from recordpublisher.plugins.sinks.queued_writes import (
    PARTIAL_FLUSH_SECONDS,
    SourceShard,
    UnfinishedWrites,
    WrittenStates,
)
from recordpublisher.plugins.tracing.trace_context import payload_with_context
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis.ports import WritingPort
from recordpublisher.publishers.properties.keyword_types import JobSettings
from recordpublisher.publishers.properties.properties import Properties, is_unknown
from recordpublisher.publishers.properties.sink_properties import SINK_STREAM
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.safe_text import repr_of
from recordpublisher.publishers.shards import arn_of, canonical_hash_key, is_valid_name, stream_name

from .pending_records import FailedRecord, PendingRecord, size_of
from .sink_settings import KINESIS_SINK_METRICS, KinesisSinkSettings, QueueLimit
from .writer import KinesisWriter

log = logging.getLogger("recordpublisher.producer")
_VALID_STREAM = "the name or ARN of a stream"


class KinesisSink(OnlyAsyncWith, Sink):
    """Puts records into a stream, and waits while too many are not acknowledged.

    Use it on its own: `async with rp.KinesisSink("out", properties) as sink: await sink.put(b"...", partition_key="k")`. As the sink of a
    job it copies records with their keys.

    Each record is put at least once. If the response of a put is lost, its records are put again, and may be in the stream twice with two
    sequence numbers. Give each message an id of its own if a reader must act once.

    - `stream`: a name or an ARN. Without it the property `flink.sink.kinesis.stream` names the stream.
    - `properties`, `settings`: properties as a mapping, as keyword arguments (`region="eu-west-1"`, see `Settings`), or both.
    - `queue_limit`: limit of the records that are not acknowledged: a number, or a function of `SinkStatistics` that returns one.
    - `ordering`: NONE or PER_KEY.
    - `fail_on_error`: if False, records that cannot be put go to `on_failure`, even those that `put` would refuse.
    - `on_failure`: a function of a `FailedRecord`, called on the event loop. Its errors are logged and counted (`callbackErrors`).

    Outside of a job the sink gives up an accepted record that was not put within `flink.job.max.outage`, or within
    `flink.job.drain.timeout` after a close. `on_failure` gets the record. Without `on_failure` the next call raises a SinkError with the
    number of these records. The sink continues in both cases. If the service rejects every call, the sink ends, and `on_failure` gets each
    record that is left.

    In a job a record that cannot be put ends the sink, unless `fail_on_error` is False. An error of `on_failure` always ends it.

    Arguments override properties. Raises: ConfigurationError if a setting is invalid.
    """

    def __init__(
        self,
        stream: str | Mapping[str, object],
        properties: Mapping[str, object] | None = None,
        *,
        queue_limit: QueueLimit | None = None,
        ordering: Literal["NONE", "PER_KEY"] | None = None,
        fail_on_error: bool | None = None,
        on_failure: Callable[[FailedRecord], None] | None = None,
        clock: Clock | None = None,
        port: WritingPort | None = None,
        **settings: Unpack[JobSettings],
    ) -> None:
        name, given = stream_and_properties(stream, properties, settings, KinesisSink)
        of_sink = KinesisSinkSettings.of(given, queue_limit, ordering, fail_on_error)
        self._context = SinkContext()
        self._stream = stream_name(name)
        with_context = payload_with_context(given)
        self._with_context = with_context
        self._writer = writer = KinesisWriter(
            port or _client(given, name), name, of_sink, clock or SystemClock(), on_failure
        )
        self.why_not_put, self.flush_or_give_up = writer.why_not_put, writer.flush_or_give_up
        self.has_lost_stream, self.take_untold_error = writer.has_lost_stream, writer.take_untold_error
        self.counters = writer.counters
        self._begin_job()
        self._may_keep_failed = not of_sink.fails_on_error and on_failure is None
        self._keeps_failed = False
        """Whether a record that cannot be put becomes a dead letter of the job."""
        self._rejecting = asyncio.Lock()
        self._is_of_program = False
        """Whether a job could not open the sink because a program has opened it. The job still calls `close` once. That call must not end
        the program's use of the sink.
        """

    async def __aenter__(self) -> Self:
        was_open = self._writer.is_open
        try:
            await self._writer.open(continues=True)
        except BaseException:
            if not was_open:  # Otherwise another block uses it.
                await self._writer.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _instead_of_with(self) -> str:
        return ". Without asyncio use 'with rp.Producer(...)'"

    @property
    def stream(self) -> str:
        """Name of the stream that the sink writes to."""
        return self._stream

    async def put(
        self,
        data: bytes,
        partition_key: str,
        explicit_hash_key: str | None = None,
        *,
        context: object = None,
        wait: bool = False,
    ) -> None:
        """Accept one record, and wait while the limit is reached. If a `put` is cancelled, its record was not accepted.

        - `partition_key`: 1 to 256 characters.
        - `explicit_hash_key`: a decimal number below 2^128, which decides the shard instead of the partition key.
        - `context`: anything, such as the number of a line. If the record cannot be put, its `FailedRecord` has this object.
        - `wait`: return when the record is acknowledged, and not when it is accepted. The record is sent no sooner: it shares calls with
          others. A call that is cancelled while it waits (`asyncio.timeout`) leaves the record in the sink, which may still put it.

        With `flink.tracing.context.field` a JSON object gets the current trace context of OpenTelemetry, unless it would then be too large.

        A `put` that raises has not accepted its record. With `wait` there is one exception: if a SinkError names this record, or says that
        it may be in the stream, the record was accepted. If it was given up, `on_failure` gets it too.

        Raises:

        - InvalidRecordError if the service would reject the record. The sink stays usable.
        - TypeError if data or a key has another type.
        - SinkError if the sink is closed, or if accepted records were given up since the last error.
        - KinesisError or StreamNotFoundError if the service rejects every call. This ends the sink.
        """
        if type(partition_key) is not str or explicit_hash_key is not None:
            partition_key, explicit_hash_key = (
                _as_text(partition_key),
                explicit_hash_key and _as_text(explicit_hash_key),
            )
        payload = _as_bytes(data)
        if self._with_context is not None:
            traced = self._with_context(payload)
            # A record that would be too large with the context is put without it, because records matter more than traces.
            if len(traced) + len(partition_key.encode(errors="replace")) <= self._writer.max_record_bytes:
                payload = traced
        await self._writer.put(payload, partition_key, explicit_hash_key, context, until_acknowledged=wait)

    async def flush(self, checkpoint: Checkpoint | None = None) -> State | None:
        """Return when every record accepted before this call is acknowledged.

        With `checkpoint` return the newest state of the job whose records are all acknowledged. If the checkpoint may be partial, wait
        for one second at most.

        Raises: SinkError if the sink was closed, or if it gave up records that this call waited for; KinesisError or StreamNotFoundError
        if the service rejects every call.
        """
        if checkpoint is None:
            await self._writer.flush()
            await self._reject_failed()
            return None
        # 1. Send what is queued now. `epoch` numbers the records that were accepted since the last flush.
        epoch = self._writer.begin_flush()
        self._states.add(epoch, checkpoint.state)
        # 2. Wait for the results of these records, or for some of them.
        await self._writer.wait_until_flushed(epoch, PARTIAL_FLUSH_SECONDS if checkpoint.may_be_partial else None)
        # 3. Return the newest state whose records are all acknowledged.
        state = self._states.newest()
        # Dead letters are written after the state is chosen, so that every failed record that the state covers has a durable dead
        # letter. Records that fail later belong to a later state.
        await self._reject_failed()
        return state

    async def close(self) -> None:
        """Flush, and close the connections.

        In an outage `close` gives up the remaining records once none was acknowledged for `flink.job.drain.timeout`. Call `flush` before
        `close` to wait for `flink.job.max.outage` instead.

        Raises: the errors of `flush`, unless an earlier call has raised the error.
        """
        if self._is_of_program:
            self._is_of_program = False
            return
        await self._writer.close(is_of_job=bool(self._context.streams))

    def metrics(self) -> dict[str, Any]:
        """Return the counters and gauges, such as `outstandingRecordsCount`, by name; see docs/reference/kinesis-sink-metrics.md."""
        return self._writer.metrics()

    def reasons_not_ready(self) -> list[str]:
        """Return in plain words why the sink puts no records. The list is empty if the sink can put records.

        The sink is not ready if it is not open, if an error has ended it, or if its calls have failed for ten seconds (or for
        `flink.job.max.outage`, if shorter). After failed calls it is not ready until the service responds again, even if no record is left.
        If a put fails again in the ten minutes after that, the sink is immediately not ready.
        """
        reason = self.why_not_put(FAILED_READ_LIMIT_MS / 1000)
        return [] if reason is None else [f"{self.destination()}: {reason}"]

    def unfinished(self) -> Unfinished:
        """Return how many records are not acknowledged.

        During an outage, in which no put succeeds, `Unfinished.call` does not change. The outage then raises the same alarm as a call of
        user code that does not return.
        """
        count = self.metrics()["outstandingRecordsCount"]
        why = self._writer.why_refused(FAILED_READ_LIMIT_MS / 1000) if count else None
        reason = f"records not acknowledged: {count}" + (f"; {why}" if why else "")
        return Unfinished(count, reason, self._writer.refused_since if count else None, shards=self._writes.by_shard())

    def exported_metrics(self) -> list[SinkMetric]:
        """Return the values of `metrics`, each with type, unit and meaning."""
        values = self.metrics()
        return [SinkMetric(name, *words, values[name]) for name, words in KINESIS_SINK_METRICS.items()]

    async def open(self, context: SinkContext) -> State | None:
        """Read the stream's limits and shards. A job calls it; a program uses `async with`.

        Raises: StreamNotFoundError if there is no such stream, errors that retries cannot fix, and SinkError if the sink is open already.
        """
        self._is_of_program = self._writer.is_open
        if self._is_of_program:
            await self._writer.open()  # Raises the SinkError of a sink that is open already.
        self._context = context
        self._begin_job()
        if self._stream in context.streams:
            log.warning(
                "the job reads %s, and its sink writes to a stream of this name. If that is the same stream, each record is read and put "
                "again without end: write to another stream",
                self._stream,
            )
        self._keeps_failed = self._may_keep_failed and bool(context.has_dead_letters)
        self._writer.keep_failed(self._keep_failed if self._keeps_failed else None)
        await self._writer.open(context.may_write, context.request_checkpoint, context.resume_writing)
        return None

    def _keep_failed(self, record: PendingRecord, reason: str) -> None:
        self._failed.append((record, reason))

    def _begin_job(self) -> None:
        """Forget the states and records of an earlier job. A program may give one sink to several DataFetchers, one after the other."""
        self._states = WrittenStates(self._writer.is_flushed)
        self._writes = UnfinishedWrites(self._writer.outstanding_of)
        self._failed: list[tuple[PendingRecord, str]] = []

    def destination(self) -> str:
        """Return the class of the sink and its stream, as text."""
        return f"{type(self).__name__}, stream {self._stream}"

    def has_room(self) -> bool:
        """Return whether the number and size of the records that are not acknowledged are below the limits."""
        return self._writer.has_room()

    async def write(self, batch: RecordBatch) -> None:
        """Put the records of a job's batch with their keys, in order."""
        rejected: list[tuple[RecordBatch, str]] = []

        def reject(index: int, reason: str) -> None:
            rejected.append((batch.slice(index, index + 1), reason))

        # 1. Make the records to put. They remember their shard, so that they are not sent after it was revoked.
        source = self._writer.permission.source(batch.shard.key)
        copies = _copies_of(batch.records, source)
        if self._keeps_failed:
            for copy, record in zip(copies, batch.records, strict=True):
                copy.origin = batch.shard, record
        # 2. Queue them, waiting for room.
        await self._writer.put_all(copies, reject)
        # 3. Remember the epoch of this batch: by its epoch the writer counts how many of the batch's records are unfinished.
        self._writes.add(self._writer.end_write(), batch)
        # 4. Write dead letters of the records that the service would refuse, and of those that it has refused since the last call.
        await self._context.reject_all(rejected)
        await self._reject_failed()

    async def _reject_failed(self) -> None:
        """Write a dead letter for each record that could not be put so far. Return when all of them are durable."""
        async with self._rejecting:
            failed = self._failed[:]
            rejected = [
                (RecordBatch(shard, [read], raw_count=1, raw_bytes=len(read.data)), reason)
                for record, reason in failed
                if record.origin is not None and not record.is_revoked
                for shard, read in [record.origin]
            ]
            if rejected:
                await self._context.reject_all(rejected)
            del self._failed[: len(failed)]  # Not earlier, because a cancelled flush would lose them.

    def revoked(self, shards: Collection[str]) -> None:
        """Send no more records of these shards. Queued records of these shards count as finished."""
        self._writer.permission.revoke(shards)
        self._states.revoke(shards)


def _copies_of(records: Sequence[UserRecord], source: SourceShard) -> list[PendingRecord]:
    """Convert records that were read into records to put. Records that have only an ASCII key are converted faster."""
    return [
        PendingRecord(record.data, key, None, len(record.data) + len(key), source=source)
        if (key := record.partition_key) and record.explicit_hash_key is None and key.isascii()
        else _copy_of(record, source)
        for record in records
    ]


def _copy_of(record: UserRecord, source: SourceShard) -> PendingRecord:
    """Convert a record that was read into a record to put. Without a key (AUTO record distribution) the sequence number becomes the key."""
    key = record.partition_key or record.sequence_number
    return PendingRecord(
        record.data, key, canonical_hash_key(record.explicit_hash_key), size_of(record.data, key), source=source
    )


def stream_and_properties(
    stream: str | Mapping[str, object],
    properties: Mapping[str, object] | None,
    settings: JobSettings,
    of: Callable[..., object],
) -> tuple[str, Properties]:
    """Return the name or ARN of the stream, and the properties merged with `settings`, the keyword arguments of the class `of`.

    Raises: ConfigurationError if there is no stream, or if a setting is invalid.
    """
    if not isinstance(stream, str | Mapping):
        raise ConfigurationError("stream", str(stream) if stream is None else stream, _VALID_STREAM)
    checked = checked_properties(properties if isinstance(stream, str) else stream, settings, of)
    # A job has checked the properties from which it makes the sink.
    if isinstance(stream, str) or of is not KinesisSink:
        all_imported = True
        if any(map(is_unknown, checked)):  # An installed plugin may declare these keys, in a file that a job uses too.
            from recordpublisher.plugins.host.plugin_loading import (
                load_registry,  # imported here because it loads pluggy
            )

            all_imported = not load_registry().import_chosen(checked)
        checked.check(all_imported=all_imported)
    name = stream if isinstance(stream, str) else checked.value(SINK_STREAM)
    if not name:
        raise ConfigurationError(SINK_STREAM.key, name, _VALID_STREAM)
    if not (arn_of(name) or is_valid_name(name)):
        raise ConfigurationError("stream" if isinstance(stream, str) else SINK_STREAM.key, name, _VALID_STREAM)
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
    """Return the key as a plain `str`. A subclass, such as a member of a `StrEnum`, is converted, because JSON encoders do not know it."""
    if isinstance(key, str):
        return str.__str__(key)
    how = (
        "give each record one; records of one key keep their order" if key is None else f"str({repr_of(key)}) makes one"
    )
    raise TypeError(f"a key of a record must be str, not {type(key).__name__}: {how}")
