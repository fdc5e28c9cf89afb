"""Defines a dead letter (a record that could not be used, with the reason), and how it is written to a sink and read again (S7).

Every field of a stored dead letter is read through `_Value` or `_Record`, which check its type. One dead letter that cannot be read does
not hinder the others.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, cast

import msgspec

from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard, is_valid_name

from ..conditional_store import SequenceText, document_as, read_document, unreadable_error


class DeadLetter(msgspec.Struct, frozen=True):
    """A record that could not be used, with the reason. The record is unchanged. `place`: where the dead letter is stored."""

    shard: Shard
    record: UserRecord
    reason: str
    place: Any = None

    @property
    def number(self) -> str:
        """The record's sequence number, followed by its sub-sequence number if the record is in an aggregate."""
        return str(SequenceNumber(self.record.sequence_number, self.record.sub_sequence_number))

    @property
    def key(self) -> tuple[str, str, int]:
        """The identity of the record: `Shard.key`, sequence number and sub-sequence number."""
        return self.shard.key, self.record.sequence_number, self.record.sub_sequence_number

    def value(self) -> dict[str, Any]:
        """Return the fields that are stored next to the columns of the record: the reason, and the payload.

        The payload is text if it is valid UTF-8, otherwise base64.
        """
        data = self.record.data
        try:
            value = _Value(self.reason, data.decode())
        except UnicodeDecodeError:
            value = _Value(self.reason, base64.b64encode(data).decode(), base64=True)
        return cast(dict[str, Any], msgspec.to_builtins(value))

    def batch(self) -> RecordBatch:
        """Return a batch of only this record, for the dead-letter sink. Its value has the reason and the payload (`value`)."""
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
    """The fields of a dead letter's record that are stored in the same way in files of lines and in tables."""

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
        """Return the dead letter of this record. `data` is its payload. An arrival time without a UTC offset is read as UTC."""
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
    """Return the dead letter in a line that the jsonl sink has written.

    Raises: StateError, which calls the line `name`, if the line is malformed.
    """
    read = document_as(snake_case(read_document(line, dict[str, Any], name)), _Line, name)
    try:
        return read.letter(read.value.data, read.value, place)
    except ValueError as error:  # Raised for a payload that is not valid base64.
        raise unreadable_error(name, error) from error


def letter_of_row(row: Mapping[str, Any], name: str, place: Any) -> DeadLetter:
    """Return the dead letter in a row of a table. `row` has the values by column name.

    Raises: StateError, which calls the row `name`, if the row is malformed.
    """
    read = document_as(snake_case(row), _Row, name)
    if not isinstance(read.data, bytes):
        raise unreadable_error(name, f"its column `data` must be bytes, but is of the type {type(read.data).__name__}")
    is_text = isinstance(read.value, str)
    value = read_document(read.value, _Value, name) if is_text else document_as(read.value, _Value, name)
    return read.letter(read.data, value, place)


def snake_case(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with their names in snake_case: `shard_id` for `shardId`."""
    return {re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", name): value for name, value in fields.items()}
