"""Dead letters as the sinks store them: a line of jsonl, or a row of Parquet or of a table. One that does not fit costs no other."""

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec

from recordpublisher.fetcher.stored_documents import Sequence as SequenceText
from recordpublisher.fetcher.stored_documents import check_document, read_document, unreadable
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.service_limits import PARTITION_KEY_CHARACTERS
from recordpublisher.publishers.shards import Shard, hash_key_from, is_valid_name

from .letters import DeadLetter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadLetters:
    """Those of a file, or of a page of a table, that can be read, and why the others cannot."""

    letters: Sequence[DeadLetter]
    unreadable: Sequence[StateError]


def read_letters(stored: Iterable[T], letter_of: Callable[[T, int], DeadLetter]) -> ReadLetters:
    """Read what is stored; `letter_of` is given its number too, and raises StateError."""
    letters: list[DeadLetter] = []
    unreadable: list[StateError] = []
    for index, each in enumerate(stored):
        try:
            letters.append(letter_of(each, index))
        except StateError as error:
            unreadable.append(error)
    return ReadLetters(letters, unreadable)


class _Value(msgspec.Struct):
    """`payload` is in jsonl only; rows have their own column."""

    payload: str = ""
    error: str | None = None
    base64: bool = False

    @property
    def data(self) -> bytes:
        return base64.b64decode(self.payload, validate=True) if self.base64 else self.payload.encode()


class _Record(msgspec.Struct, kw_only=True):
    """What both forms have."""

    stream: str
    shard_id: str
    sequence_number: SequenceText
    sub_sequence_number: Annotated[int, msgspec.Meta(ge=-1, le=2**53)]
    partition_key: Annotated[str, msgspec.Meta(max_length=PARTITION_KEY_CHARACTERS)] | None
    explicit_hash_key: str | None = None
    approximate_arrival_timestamp: datetime

    def __post_init__(self) -> None:
        if not (is_valid_name(self.stream) and is_valid_name(self.shard_id) and self.sequence_number):
            raise ValueError(f"{self.stream!r}, {self.shard_id!r} and {self.sequence_number!r} name no record")
        if self.explicit_hash_key is not None and hash_key_from(self.explicit_hash_key) is None:
            raise ValueError(f"{self.explicit_hash_key!r} is no hash key")
        if not 1970 <= self.approximate_arrival_timestamp.year < 9999:
            raise ValueError(f"{self.approximate_arrival_timestamp} is no time of arrival")

    def letter(self, data: bytes, reason: str | None, place: Any) -> DeadLetter:
        """The letter; a time without an offset is in UTC."""
        arrival = self.approximate_arrival_timestamp
        record = UserRecord(
            data,
            self.sequence_number,
            (arrival.replace(tzinfo=UTC) if arrival.tzinfo is None else arrival).timestamp(),
            self.partition_key,
            self.explicit_hash_key,
            self.sub_sequence_number,
        )
        return DeadLetter(Shard(self.stream, self.shard_id), record, reason or "", place)


class _Line(_Record):
    value: _Value


class _Row(_Record):
    data: Any
    value: Any


def letter_of_line(line: bytes, name: str, place: Any) -> DeadLetter:
    """A letter as the jsonl sink writes it; `name` is for errors. Raises: StateError."""
    read = check_document(snake_case(read_document(line, dict[str, Any], name)), _Line, name)
    try:
        return read.letter(read.value.data, read.value.error, place)
    except ValueError as error:  # base64 that is none
        raise unreadable(name, error) from error


def letter_of_row(row: Mapping[str, Any], name: str, place: Any) -> DeadLetter:
    """A letter from the columns of a record; `name` is for errors. Raises: StateError."""
    read = check_document(snake_case(row), _Row, name)
    if not isinstance(read.data, bytes):
        raise unreadable(name, f"its data is of the type {type(read.data).__name__}")
    is_text = isinstance(read.value, str)
    value = read_document(read.value, _Value, name) if is_text else check_document(read.value, _Value, name)
    return read.letter(read.data, value.error, place)


def snake_case(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by the names of columns: files have those of Spark."""
    return {re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", name): value for name, value in fields.items()}
