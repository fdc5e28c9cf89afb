"""Puts rows into streams with the Kinesis sink: `df.writeStream.format("kinesis")` and `df.write.format("kinesis")`.

Spark calls `RowWriter` and its subclasses on the driver and in tasks. `TaskWrite` is one task. The Kinesis writers are in `WriterPool`. The
tasks of a process share them.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import (
    ConfigurationError,
    RecordPublisherError,
    SinkError,
    TransientError,
)
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.kinesis.ports import PutEntry, PutRecordsResponse, StreamSummary, WritingPort
from recordpublisher.publishers.properties.retry_properties import outage_policy
from recordpublisher.publishers.safe_text import counted
from recordpublisher.publishers.shards import Shard

from ..sinks.kinesis.outstanding_records import fetch_stream_summary
from ..sinks.kinesis.pending_records import FailedRecord, PendingRecord
from ..sinks.kinesis.sink_settings import KinesisSinkSettings
from ..sinks.kinesis.writer import KinesisWriter
from .outages import OutageWatch
from .python_worker import WorkerLoop, errors_as_one_sentence, log_to_stderr, worker_loop
from .rows_to_records import (
    BATCH,
    IdField,
    RejectedRows,
    RejectRow,
    RowIds,
    RowsToRecords,
    columns_of,
    id_prefix_of,
    slices_of_batch,
)
from .version_dependent_names import DataSourceStreamArrowWriter
from .write_options import WriteOptions, check_folder, dead_letter_sink

LOG = logging.getLogger("recordpublisher.spark")


class RowWriter:
    """The common part of the writers of streaming queries and of batch jobs.

    It has only checked options and columns, because Spark pickles it.
    """

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        self._options = options
        self._columns = columns_of(
            [(each.name, each.dataType.simpleString()) for each in schema.fields], options.stream
        )
        self._run = uuid.uuid4().hex  # Made on the driver, so all attempts of a batch job's tasks have the same.

    def check(self) -> None:
        """Check the folder for dead letters and the target stream. Called on the driver.

        Raises: ConfigurationError if the folder cannot be written; StreamNotFoundError if the stream does not exist; FatalKinesisError if
        retries cannot fix the error.
        """
        check_folder(self._options.properties)
        check_target(self._options, worker_loop(), self._client)

    @errors_as_one_sentence()
    def write(self, iterator: Iterator[Any]) -> TaskCommitMessage:
        """Put the rows of one task. Raises: SinkError if they cannot be put. The error names batch and task."""
        context = TaskContext.get()
        task, batch = context.partitionId(), context.getLocalProperty(BATCH)
        where = f"task {task}" + ("" if batch is None else f" of batch {batch}")
        scope = id_prefix_of(context.getLocalProperty, self._run, task)
        write = TaskWrite(
            task,
            context.attemptNumber(),
            where,
            self._rows(scope),
            worker_loop(),
            ("write", *self._options.connection_key),
            self._open,
            None if self._options.on_failure == "FAIL" else rejected_rows(self._options, task, where, scope),
        )
        return TaskCommitMessage(write.run(iterator))

    def _rows(self, scope: str) -> RowsToRecords:
        name = self._options.id_field
        ids = (None, None) if name is None else (RowIds(scope), IdField(name))
        return RowsToRecords(self._columns, self._options.stream, *ids)

    def _open(self) -> WriterPool:
        options = self._options
        settings = options.settings if options.stream is not None else options.settings_per_stream()
        reports_failures = options.on_failure != "FAIL"
        return WriterPool(settings, self._connect, reports_failures=reports_failures)

    def _connect(self, stream: str) -> PatientPort:
        return PatientPort(self._client(stream), self._options.max_outage_ms)

    def _client(self, stream: str) -> KinesisClient:
        return KinesisClient(self._options.properties, [stream])


class KinesisStreamWriter(RowWriter, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes a streaming query. Every output mode only adds records, because records cannot be removed from a stream."""

    def commit(self, messages: Sequence[TaskCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log a finished batch. The service has acknowledged all its records."""
        _log_commit(f"batch {batchId}", messages)

    def abort(self, messages: Sequence[TaskCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log a failed batch. Records that were put stay in the stream."""
        _log_abort(f"batch {batchId}", messages)


class KinesisBatchWriter(RowWriter, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes the rows of a batch job (`df.write`). Raises: ConfigurationError if the mode is "overwrite"."""

    def __init__(self, options: WriteOptions, schema: Any, overwrite: bool) -> None:
        if overwrite:
            reason = "records cannot be removed from a stream"
            raise ConfigurationError("mode", "overwrite", "append, as df.write.mode('append')", reason=reason)
        super().__init__(options, schema)

    def commit(self, messages: Sequence[TaskCommitMessage | None]) -> None:
        """Log a finished write. The service has acknowledged all its records."""
        _log_commit("write", messages)

    def abort(self, messages: Sequence[TaskCommitMessage | None]) -> None:
        """Log a failed write. Records that were put stay in the stream."""
        _log_abort("write", messages)


def rejected_rows(options: WriteOptions, task: int, where: str, scope: str) -> RejectedRows:
    """Return the object for the rows that a task cannot put. Its dead-letter sink retries for `maxOutage`, as the writer does.

    - `task`: the number of the task. `RejectedRows` describes `where` and `scope`.
    """
    properties = options.properties
    return RejectedRows(dead_letter_sink(properties), task, where, scope, outage_policy(properties))


class PatientPort:
    """A client for the Kinesis sink (WritingPort) that repeats the calls of another one during outages.

    A call that fails as a whole is repeated for up to `max_outage_ms`. After that it raises OutageError, which ends the task. A response
    with refused records is not an outage: the sink puts those records again.
    """

    def __init__(self, port: WritingPort, max_outage_ms: int, clock: Clock | None = None) -> None:
        self._port = port
        self._outages = OutageWatch(max_outage_ms, clock)

    async def put_records(self, stream: str, entries: Sequence[PutEntry]) -> PutRecordsResponse:
        """Put records. If a response is lost, the repeated call may put them into the stream twice."""
        return await self._outages.wait_out_async(lambda: self._port.put_records(stream, entries), "PutRecords")

    async def list_shards(self, stream: str) -> list[Shard]:
        """Return every shard of the stream."""
        return await self._outages.wait_out_async(lambda: self._port.list_shards(stream), "ListShards")

    async def stream_summary(self, stream: str) -> StreamSummary:
        """Return the summary of the stream, which has its limits."""
        return await self._outages.wait_out_async(lambda: self._port.stream_summary(stream), "DescribeStreamSummary")

    async def close(self) -> None:
        """Close the wrapped port."""
        await self._port.close()


@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):  # type: ignore[misc] # pyspark is not typed here
    """The message that a finished task sends to the driver."""

    figures: TaskFigures


def _figures(messages: Sequence[TaskCommitMessage | None]) -> list[TaskFigures]:
    return [message.figures for message in messages if message is not None]


def _log_commit(what: str, messages: Sequence[TaskCommitMessage | None]) -> None:
    log_to_stderr()
    tasks = _figures(messages)
    LOG.log(logging.WARNING if any(one.given_up for one in tasks) else logging.INFO, commit_line(what, tasks))


def _log_abort(what: str, messages: Sequence[TaskCommitMessage | None]) -> None:
    log_to_stderr()
    LOG.warning(abort_line(what, _figures(messages)))


def commit_line(what: str, tasks: Sequence[TaskFigures]) -> str:
    """Return the log line of a finished batch. `what` names the batch."""
    slowest = max(tasks, key=lambda one: one.seconds, default=None)
    return (
        f"{what}: {_sum(tasks, 'records')} records and {_sum(tasks, 'bytes')} bytes put by {counted(len(tasks), 'task')}, "
        f"as {_sum(tasks, 'kinesis_records')} Kinesis records; "
        f"{_sum(tasks, 'retries')} sent again, {_sum(tasks, 'throttles')} throttled, {_given_up(tasks)}, "
        f"{_sum(tasks, 'waits')} waits because of back-pressure; "
        + ("no task wrote" if slowest is None else f"the slowest task ({slowest.task}) took {slowest.seconds:.1f} s")
    )


def abort_line(what: str, done: Sequence[TaskFigures]) -> str:
    """Return the log line of a failed batch. It says how many records are in the stream. `what` names the batch."""
    return (
        f"{what} failed: {_sum(done, 'records')} records of {counted(len(done), 'finished task')} are in the stream, "
        "perhaps more of other tasks; "
        "if it runs again, all of them are put again (at least once)"
    )


def _given_up(tasks: Sequence[TaskFigures]) -> str:
    letters = _sum(tasks, "dead_letters")
    return f"{_sum(tasks, 'given_up')} given up" + (f" ({letters} dead letters)" if letters else "")


def _sum(tasks: Sequence[TaskFigures], name: str) -> int:
    return sum(getattr(one, name) for one in tasks)


def check_target(options: WriteOptions, loop: WorkerLoop, connect: Callable[[str], WritingPort]) -> None:
    """Check the target stream, once in each process. Streams that a column names are not checked.

    Raises: StreamNotFoundError, FatalKinesisError or ConfigurationError if every attempt of a task would fail with that error.
    """
    stream = options.stream
    if stream is not None:
        key = ("target", stream, *options.connection_key)
        loop.cached(key, lambda: loop.run(probe_target(connect(stream), stream)))


async def probe_target(port: WritingPort, stream: str) -> bool:
    """Make the calls with which a task begins, close the port, and return True (a value for the cache).

    Errors that every attempt of a task would get are raised. Transient errors are ignored, because tasks retry them, and an error here
    would end the query.
    """
    try:
        with contextlib.suppress(TransientError):
            await fetch_stream_summary(port, stream)
            await port.list_shards(stream)
    finally:
        await port.close()
    return True


SKIP_HINT = "; the options onFailure=SKIP and deadLetters=<folder> continue without such rows"


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The counts of a finished task.

    - `records`, `bytes`: rows acknowledged, and the bytes of their data and keys.
    - `kinesis_records`: Kinesis records acknowledged. With aggregation these are fewer than the rows.
    - `retries`, `throttles`: records sent again, and records that a shard's limit rejected.
    - `given_up`, `dead_letters`: rows that were not put, and how many of them are dead letters.
    - `waits`: how often the task waited because too many records were not yet acknowledged.
    """

    task: int
    attempt: int
    records: int
    bytes: int
    kinesis_records: int
    retries: int
    throttles: int
    given_up: int
    waits: int
    seconds: float
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """Writes the rows of one attempt of a task.

    - `where`: the task's name in errors, such as `task 3 of batch 7`.
    - `pool_key`, `make`: the key under which the process caches this job's writers, and a function that makes them if they are not cached.
    - `rejected`: receives the rows that cannot be put. If it is None, such a row fails the task.
    """

    task: int
    attempt: int
    where: str
    rows: RowsToRecords
    loop: WorkerLoop
    pool_key: tuple[object, ...]
    make: Callable[[], WriterPool]
    rejected: RejectedRows | None = None
    clock: Clock = SystemClock()  # noqa: RUF009 - has no state

    def run(self, batches: Iterable[Any]) -> TaskFigures:
        """Put Arrow batches one by one. Return when all rows are acknowledged.

        Raises: SinkError if rows cannot be put. The error names batch and task. The next attempt puts all rows again, including rows that
        this attempt has put.
        """
        writers = self.loop.cached(self.pool_key, self.make)
        writers.reject = None if self.rejected is None else self.rejected.add
        began, before, invalid = self.clock.monotonic(), writers.totals(), 0
        try:
            for batch in batches:
                for part in slices_of_batch(batch):
                    rows = self.rows.valid_rows(part, writers.reject)
                    invalid += part.num_rows - rows.num_rows
                    self.loop.run(self._put(writers, self.rows.records_of(rows)))
            self.loop.run(self._finish(writers))
        except BaseException as error:
            self._abandon(writers)
            if isinstance(error, RecordPublisherError):
                hint = SKIP_HINT if isinstance(error, SinkError) and self.rejected is None else ""
                raise SinkError(f"{self.where}: {error}{hint}") from error
            raise
        return self._figures(writers.totals() - before, invalid, self.clock.monotonic() - began)

    async def _put(self, writers: WriterPool, records: Mapping[str, Sequence[PendingRecord]]) -> None:
        await writers.put(records)
        if self.rejected is not None:
            await self.rejected.write()

    async def _finish(self, writers: WriterPool) -> None:
        await writers.flush()
        if self.rejected is not None:
            await self.rejected.wait_until_stored()

    def _abandon(self, writers: WriterPool) -> None:
        """Close the failed writers, without waiting for records that are not acknowledged."""
        self.loop.forget(self.pool_key)
        self.loop.run_in_background(writers.abandon())
        if self.rejected is not None:
            self.loop.run_in_background(self.rejected.close())

    def _figures(self, counts: Counter[str], invalid: int, seconds: float) -> TaskFigures:
        return TaskFigures(
            task=self.task,
            attempt=self.attempt,
            records=counts["numRecordsOut"],
            bytes=counts["numBytesOut"],
            kinesis_records=counts["kinesisRecords"],
            retries=counts["resentRecords"],
            throttles=counts["throttles"],
            given_up=counts["numRecordsOutErrors"] + invalid,
            waits=counts["backpressureCycles"],
            seconds=seconds,
            dead_letters=0 if self.rejected is None else self.rejected.letters,
        )


MAX_OPEN_STREAMS = 50
"""The most writers that are open at a time. Rows may name any number of streams, and each writer has its own connections and buffers."""


class WriterPool:
    """Owns one Kinesis writer for each target stream. It runs on the process's event loop, for one task at a time.

    - `reports_failures`: whether a record that cannot be put is passed to `reject`. Otherwise it is an error. The task sets `reject`.
    """

    def __init__(
        self,
        settings: KinesisSinkSettings,
        connect: Callable[[str], WritingPort],
        clock: Clock | None = None,
        *,
        reports_failures: bool = False,
    ) -> None:
        self._settings = replace(settings, fails_on_error=False) if reports_failures else settings
        self._connect = connect
        self._clock = clock or SystemClock()
        self._reports_failures = reports_failures
        self.reject: RejectRow | None = None
        self._writers: dict[str, KinesisWriter] = {}
        self._closed_totals: Counter[str] = Counter()

    async def put(self, records: Mapping[str, Sequence[PendingRecord]]) -> None:
        """Put records into their streams. Wait while too many records are not acknowledged. Raises: the error of a writer."""
        for stream, some in records.items():
            await (await self._writer_of(stream)).put_all(some)

    async def flush(self) -> None:
        """Return when all records are acknowledged. Raises: the error of a writer."""
        for writer in self._writers.values():
            await writer.flush()

    async def abandon(self) -> None:
        """Close at once, without waiting. Records that are not acknowledged may or may not be in the stream."""
        while self._writers:
            _, writer = self._writers.popitem()
            self._closed_totals.update(_counts(writer))
            await writer.abort()

    def totals(self) -> Counter[str]:
        """Return the counters of all writers together, including closed writers."""
        summed = self._closed_totals.copy()
        for writer in self._writers.values():
            summed.update(_counts(writer))
        return summed

    async def _writer_of(self, stream: str) -> KinesisWriter:
        writer = self._writers.get(stream)
        if writer is None:
            if len(self._writers) >= MAX_OPEN_STREAMS:
                await self.flush()
                await self.abandon()
            on_failure = partial(self._on_failed, stream) if self._reports_failures else None
            writer = KinesisWriter(self._connect(stream), stream, self._settings, self._clock, on_failure)
            try:
                await writer.open()
            except BaseException:
                await writer.close()
                raise
            self._writers[stream] = writer
        return writer

    def _on_failed(self, stream: str, failed: FailedRecord) -> None:
        assert self.reject is not None
        self.reject(stream, failed)


def _counts(writer: KinesisWriter) -> dict[str, int]:
    return {name: value for name, value in writer.metrics().items() if isinstance(value, int)}
