"""Records that could not be processed (dead letters): their format, and the sink that keeps them."""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, cast

import msgspec

from recordpublisher.publishers.errors import ConfigurationError, PluginError
from recordpublisher.publishers.log_fields import repr_of, writable
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.properties.job_properties import DEAD_LETTER as DEAD_LETTER_SETTINGS
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shard_metrics import SUMMED_COUNTERS
from recordpublisher.publishers.shards import Shard, is_valid_name
from recordpublisher.publishers.skipped_records_log import DEAD_LETTER, SkippedRecordsLog

from ..conditional_store import SequenceText, document_as, read_document, unreadable_error
from ..sink import Checkpoint, RejectedRecord, Sink, SinkContext, fail_on_rejected_record
from .sink_errors import check_unchanged, close_sink, naming_sink

log = logging.getLogger("recordpublisher.fetcher")
_NO_STATE = Checkpoint({"shards": {}})
"""The checkpoint that is passed to the dead-letter sink. It has no state, because that sink does not store the job's positions."""
DEAD_LETTER_SINK_WORDS = "dead-letter sink"
SINK_KEY_PREFIX = "flink.sink."
"""The prefix of the keys of a sink's settings."""


class DeadLetterHandler:
    """Handles a record that cannot be processed: fails the job, skips and counts the record, or writes a dead letter.

    Owns the dead-letter sink, if there is one. Dead letters are flushed before the position moves past their records, so none is lost.
    After a crash a dead letter may be written again.

    - `count(key, counter)`: counts a record of a shard (`Shard.key`) in one of its metrics.
    - `rejected`: number of records that the job's sink has rejected or skipped. They count as written too.
    """

    def __init__(
        self, count: Callable[[str, str], None], on_poison: OnBadRecord, dead_letter_sink: Sink | None
    ) -> None:
        self._count = count
        self._skips = on_poison is OnBadRecord.SKIP
        self._sink = dead_letter_sink
        self._skipped_log = SkippedRecordsLog(log)
        self.rejected = 0

    async def open(self, job: SinkContext) -> SinkContext:
        """Open the dead-letter sink. Return the context for the job's own sink, with the functions through which that sink rejects records.

        State that the dead-letter sink returns is ignored, because that sink does not store the job's positions.
        """
        if self._sink is not None:
            with _as_dead_letter_sink(self._sink, "open"):
                await self._sink.open(SinkContext(job.streams))
        return replace(
            job,
            reject=self.handle_rejected,
            reject_together=self.handle_all_rejected,
            count=self.count_in_sink,
            has_dead_letters=self._sink is not None,
        )

    async def handle_undeserialized(self, batch: RecordBatch) -> None:
        """Write a dead letter for each record of a batch that could not be deserialised."""
        for found in batch.poisoned:
            await self._write(batch.shard, found.record, found.reason)

    async def handle_rejected(self, record: RecordBatch, reason: str) -> None:
        """Handle a record (a batch of one) that the sink can never write. Raises: SinkError if this fails the job."""
        await self.handle_all_rejected([(record, reason)])

    async def handle_all_rejected(self, rejected: Sequence[RejectedRecord], is_logged: bool = False) -> None:
        """Handle several rejected records. Their dead letters are durable when this returns.

        `is_logged`: whether the sink has already logged them.

        Raises: SinkError if this fails the job.
        """
        for each in rejected:
            self._check_rejected(each)
        for record, reason in rejected:
            await self._handle(record, reason, is_logged)
        if rejected:
            await self.flush()

    @staticmethod
    def _check_rejected(given: Any) -> None:
        """Check the arguments of `reject`. Raises: PluginError unless they are a batch of exactly one record, and a reason."""
        is_pair = isinstance(given, tuple) and len(given) == 2
        record, reason = given if is_pair else (given, None)
        if not isinstance(record, RecordBatch) or len(record) != 1:
            raise PluginError(
                f"a sink has rejected {repr_of(record, 100)}: reject one record as a batch, `batch.slice(index, index + 1)`; `reject_all` "
                "takes a list of (batch, reason)"
            )
        if not isinstance(reason, str):
            raise PluginError(f"a sink has rejected a record with the reason {repr_of(reason, 60)}: give a text")

    async def _handle(self, record: RecordBatch, reason: str, is_logged: bool) -> None:
        # A plugin may give a reason that neither a sink nor a log file could write.
        is_kept, reason = self._sink is not None, writable(reason)
        if not is_kept and not self._skips:
            await fail_on_rejected_record(record, reason)
        key, first = record.shard.key, record.sequence_numbers[0]
        if not is_logged:
            how = DEAD_LETTER if is_kept else "skipped"
            self._skipped_log.skipped(f"record {first} of {key}", reason, None, key, first, how=how)
        if is_kept:
            await self._write(record.shard, record.records[0], reason)
            self.rejected += 1
        else:
            self.count_in_sink(key, "skipped_records")

    def count_in_sink(self, key: str, counter: str) -> None:
        """Count a record that the sink has received, in one of the counters of its shard (`Shard.key`).

        Raises: PluginError if `counter` is not one of `SUMMED_COUNTERS`. The counts of other counters would be lost with their shard, which
        the worker may no longer own.
        """
        if counter not in SUMMED_COUNTERS:
            raise PluginError(
                f"a sink has counted a record in {repr_of(counter)}. Valid values: {', '.join(SUMMED_COUNTERS)}"
            )
        self._count(key, counter)
        self.rejected += counter == "skipped_records"

    async def flush(self) -> None:
        """Return when every dead letter is durable."""
        if self._sink is not None:
            with _as_dead_letter_sink(self._sink, "flush"):
                await self._sink.flush(_NO_STATE)

    async def close(self, seconds: float) -> None:
        """Close the dead-letter sink, but wait no longer than `seconds` for it."""
        if self._sink is not None:
            await close_sink(self._sink, seconds, DEAD_LETTER_SINK_WORDS)

    async def _write(self, shard: Shard, record: UserRecord, reason: str) -> None:
        if self._sink is None:
            raise AssertionError(
                "internal error: a dead letter was to be written without a dead-letter sink. Please report it"
            )
        with _as_dead_letter_sink(self._sink, "write"):
            batch = DeadLetter(shard, record, reason).batch()
            await self._sink.write(batch)
            check_unchanged(self._sink, batch, 1)
        self._count(shard.key, "dead_letters")


def dead_letter_sink_error(error: ConfigurationError, more: str = "") -> ConfigurationError:
    """Return a copy of `error` that names the dead-letter sink's own properties: `flink.deadletter.` instead of `flink.sink.`.

    `more`: a further reason to add.
    """
    words = "; ".join(filter(None, (error.reason, more)))
    key, valid, reason, statement = (
        each.replace(SINK_KEY_PREFIX, DEAD_LETTER_SETTINGS.key)
        for each in (error.key, error.valid, words, error.statement)
    )
    return error.reworded(key, valid, reason, statement)


@contextmanager
def _as_dead_letter_sink(sink: Sink, method: str) -> Iterator[None]:
    try:
        with naming_sink(sink, method, DEAD_LETTER_SINK_WORDS):
            yield
    except ConfigurationError as error:
        raise dead_letter_sink_error(error) from error


# DeadLetter: a record that could not be used, with the reason, and how it is written to a sink and read again (S7).
#
# Every field of a stored dead letter is read through `_Value` or `_Record`, which check its type. One dead letter that cannot be read does
# not hinder the others.


class DeadLetter(msgspec.Struct, frozen=True):
    """A record that could not be used, unchanged, and the reason. `place`: where the dead letter is in its storage."""

    shard: Shard
    record: UserRecord
    reason: str
    place: Any = None

    @property
    def number(self) -> str:
        """The record's sequence number, with the sub-sequence number within an aggregate."""
        return str(SequenceNumber(self.record.sequence_number, self.record.sub_sequence_number))

    @property
    def key(self) -> tuple[str, str, int]:
        """The identity of the record: `Shard.key`, sequence number and sub-sequence number."""
        return self.shard.key, self.record.sequence_number, self.record.sub_sequence_number

    def value(self) -> dict[str, Any]:
        """Return the fields that are stored next to the columns of the record: the reason, and the payload as text or else as base64."""
        data = self.record.data
        try:
            value = _Value(self.reason, data.decode())
        except UnicodeDecodeError:
            value = _Value(self.reason, base64.b64encode(data).decode(), base64=True)
        return cast(dict[str, Any], msgspec.to_builtins(value))

    def batch(self) -> RecordBatch:
        """Return a batch of this record alone, unchanged, which the dead-letter sink writes."""
        data = self.record.data
        return RecordBatch(self.shard, [self.record], raw_count=1, raw_bytes=len(data), decoded=[self.value()])


class _Value(msgspec.Struct, omit_defaults=True):
    """The fields of a dead letter that are stored next to the columns of its record.

    `payload` is only used in files of lines. A table has a column with the payload.
    """

    error: str | None = None
    payload: str | msgspec.UnsetType = msgspec.UNSET
    base64: bool = False

    @property
    def data(self) -> bytes:
        payload = self.payload if isinstance(self.payload, str) else ""
        return base64.b64decode(payload, validate=True) if self.base64 else payload.encode()


class _Record(msgspec.Struct, kw_only=True):
    """The fields of the record that a line of a file and a row of a table have in common."""

    stream: str
    shard_id: str
    sequence_number: SequenceText
    sub_sequence_number: Annotated[int, msgspec.Meta(ge=-1, le=2**53)]
    partition_key: str | None
    explicit_hash_key: str | None = None
    approximate_arrival_timestamp: datetime

    def __post_init__(self) -> None:
        if not (is_valid_name(self.stream) and is_valid_name(self.shard_id) and self.sequence_number):
            raise ValueError(
                f"{self.stream!r}, {self.shard_id!r} and {self.sequence_number!r} do not identify a record"
            )
        if not 1970 <= self.approximate_arrival_timestamp.year < 9999:
            raise ValueError(f"{self.approximate_arrival_timestamp} cannot be the time at which a record arrived")

    def letter(self, data: bytes, value: _Value, place: Any) -> DeadLetter:
        """Return the dead letter that has this payload and these fields. An arrival time without an offset is in UTC."""
        arrival = self.approximate_arrival_timestamp
        record = UserRecord(
            data,
            self.sequence_number,
            (arrival.replace(tzinfo=UTC) if arrival.tzinfo is None else arrival).timestamp(),
            self.partition_key,
            self.explicit_hash_key,
            self.sub_sequence_number,
        )
        return DeadLetter(Shard(self.stream, self.shard_id), record, value.error or "", place)


class _Line(_Record):
    value: _Value


class _Row(_Record):
    data: Any
    value: Any


def letter_of_line(line: bytes, name: str, place: Any) -> DeadLetter:
    """Return the dead letter in a line that the jsonl sink has written. `name`: what errors call the line.

    Raises: StateError if the line is malformed.
    """
    read = document_as(snake_case(read_document(line, dict[str, Any], name)), _Line, name)
    try:
        return read.letter(read.value.data, read.value, place)
    except ValueError as error:  # Raised for a payload that is not valid base64.
        raise unreadable_error(name, error) from error


def letter_of_row(row: Mapping[str, Any], name: str, place: Any) -> DeadLetter:
    """Return the dead letter in a row of a table, by column names. `name`: what errors call the row.

    Raises: StateError if the row is malformed.
    """
    read = document_as(snake_case(row), _Row, name)
    if not isinstance(read.data, bytes):
        raise unreadable_error(name, f"its column `data` must be bytes, but is of the type {type(read.data).__name__}")
    is_text = isinstance(read.value, str)
    value = read_document(read.value, _Value, name) if is_text else document_as(read.value, _Value, name)
    return read.letter(read.data, value, place)


def snake_case(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with the names of columns in snake_case. Files of lines have Spark's camel-case names."""
    return {re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", name): value for name, value in fields.items()}
