"""Reads and writes the KPL's aggregation format, as aggregation-format.md of the KPL describes it.

An aggregate is made of magic bytes, a protobuf message AggregatedRecord, and the message's MD5 digest.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, NamedTuple, TypeVar

from ..records import KPL_MAGIC, UserRecord, to_millis
from ..shards import hash_key_from

T = TypeVar("T")
R = TypeVar("R")

STEP = 4096
"""How many sub-records or keys are handled in one step. A step takes about 2 ms. Between two steps the event loop runs other tasks."""
_DIGEST_BYTES = 16
Columns = tuple[list[bytes], list[int], Sequence[int | None] | None]
"""Three columns of sub-records: their data, key indexes and explicit hash key indexes."""


def parse_aggregate(data: bytes) -> SubRecords | LongAggregate | None:
    """Return the aggregate in a record's data, or None if the data is not an aggregate. The rules are those of the KCL.

    Data is not an aggregate if its magic bytes, digest or message are wrong. A short aggregate is returned as all its sub-records. A long
    aggregate is only parsed. `LongAggregate.is_valid` checks its keys later.
    """
    # 1. Magic bytes and digest distinguish an aggregate from other data.
    if not data.startswith(KPL_MAGIC) or len(data) < len(KPL_MAGIC) + _DIGEST_BYTES:
        return None
    message, digest = data[len(KPL_MAGIC) : -_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.md5(message, usedforsecurity=False).digest() != digest:
        return None
    # 2. Parse the message as columns. If only some sub-records have a field, parse it record by record.
    try:
        parsed = _columns(message) or _columns_one_by_one(message)
        if parsed is None:
            return None
        length, read, whole = parsed
        # 3. Leave a long aggregate to its reader, which takes it in steps. Check a short one at once.
        table, hash_table = whole.partition_key_table, whole.explicit_hash_key_table
        if max(length, len(table), len(hash_table)) > STEP:
            return LongAggregate(length, read, table, hash_table)
        whole_aggregate = SubRecords(read(0, length), _texts(table), _texts(hash_table) if hash_table else [])
    except (_protobuf().decode_error, UnicodeDecodeError):
        return None
    return whole_aggregate if whole_aggregate.has_all_keys() else None


def encode_aggregate(parts: Sequence[tuple[str, str | None, bytes]]) -> bytes:
    """Return an aggregate as bytes. Each key is stored once.

    - `parts`: the sub-records, each with partition key, explicit hash key and data.
    """
    keys: dict[str, int] = {}
    hash_keys: dict[str, int] = {}
    whole = _protobuf().whole()
    add = whole.records.add
    for key, hash_key, data in parts:
        index = keys.setdefault(key, len(keys))
        if hash_key is None:
            add(partition_key_index=index, data=data)
        else:
            explicit = hash_keys.setdefault(hash_key, len(hash_keys))
            add(partition_key_index=index, explicit_hash_key_index=explicit, data=data)
    whole.partition_key_table.extend([key.encode() for key in keys])
    whole.explicit_hash_key_table.extend([key.encode() for key in hash_keys])
    message: bytes = whole.SerializeToString()
    return KPL_MAGIC + message + hashlib.md5(message, usedforsecurity=False).digest()


def hash_key_of(partition_key: str, explicit_hash_key: str | None) -> int:
    """Return the 128-bit hash key that decides the shard of a record.

    It is the explicit hash key if that is valid, else the MD5 of the partition key.
    """
    explicit = hash_key_from(explicit_hash_key or "")
    if explicit is not None:
        return explicit
    return int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest(), "big")


class SubRecords:
    """Consecutive sub-records of an aggregate as columns, and the two tables of keys to which their indexes refer.

    `hash_key_indexes` is None if no sub-record of the aggregate has an explicit hash key.
    """

    __slots__ = ("data", "explicit_hash_keys", "hash_key_indexes", "key_indexes", "partition_keys")

    def __init__(self, columns: Columns, partition_keys: list[str], explicit_hash_keys: list[str]) -> None:
        self.data, self.key_indexes, self.hash_key_indexes = columns
        self.partition_keys = partition_keys
        self.explicit_hash_keys = explicit_hash_keys

    def columns(self, record: UserRecord, first: int, owned: Sequence[bool] | None = None) -> Iterable[Sequence[Any]]:
        """Return the columns `COLUMNS` of the sub-records that are `owned`, or of all sub-records if it is None.

        - `first`: the sub-sequence number of the first sub-record. Sub-records that are not owned are numbered too.
        """
        count = len(self.data)
        keys, hash_keys, indexes = self.partition_keys, self.explicit_hash_keys, self.hash_key_indexes
        columns: tuple[Sequence[Any], ...] = (
            self.data,
            [record.sequence_number] * count,
            [to_millis(record.arrival)] * count,
            [keys[index] for index in self.key_indexes],
            [None] * count if indexes is None else [None if at is None else hash_keys[at] for at in indexes],
            range(first, first + count),
        )
        return columns if owned is None else [list(compress(column, owned)) for column in columns]

    def has_all_keys(self) -> bool:
        """Return whether every index is within its table. An explicit hash key index without a table is ignored."""
        if max(self.key_indexes, default=-1) >= len(self.partition_keys):
            return False
        if self.hash_key_indexes is None:
            return True
        explicit = [index for index in self.hash_key_indexes if index is not None]
        return max(explicit, default=-1) < len(self.explicit_hash_keys)


class LongAggregate:
    """An aggregate that is so long that decoding it at once would block the event loop. Its sub-records are read in slices."""

    def __init__(
        self,
        length: int,
        read: Callable[[int, int], Columns],
        key_table: Sequence[bytes],
        hash_key_table: Sequence[bytes],
    ) -> None:
        self.length = length
        self._read = read
        self._key_table = key_table
        self._hash_key_table = hash_key_table
        self._keys: list[str] = []
        self._hash_keys: list[str] = []

    def read(self, first: int, stop: int) -> SubRecords:
        """Return the sub-records from `first` up to, not including, `stop`. Call `is_valid` before."""
        return SubRecords(self._read(first, stop), self._keys, self._hash_keys)

    async def is_valid(self) -> bool:
        """Decode the keys and check every index, step by step.

        Return False if a key is not UTF-8, or if an index has no key in its table.
        """
        try:
            self._keys = await in_steps(_texts, self._key_table)
            self._hash_keys = await in_steps(_texts, self._hash_key_table)
        except UnicodeDecodeError:
            return False
        for first in range(0, self.length, STEP):
            if not self.read(first, first + STEP).has_all_keys():
                return False
            await asyncio.sleep(0)
        return True


async def in_steps(work: Callable[[Sequence[T]], list[R]], items: Sequence[T]) -> list[R]:
    """Return the results of `work` for the items. `work` receives `STEP` items at a time. In between, the event loop runs other tasks."""
    results: list[R] = []
    for first in range(0, len(items), STEP):
        results += work(items[first : first + STEP])
        if first + STEP < len(items):
            await asyncio.sleep(0)
    return results


# --- the protobuf message -----------------------------------------------------------------------------------------------------------

_Parsed = tuple[int, Callable[[int, int], Columns], Any]
"""A parsed message: how many sub-records it has, a function that returns columns of some of them, and the message itself."""


def _columns(message: bytes) -> _Parsed | None:
    """Parse the message as columns, all sub-records at once.

    Return None if the columns differ in length, because it is then not known which value belongs to which sub-record.

    Raises: DecodeError if the message is malformed, or no sub-record has data.
    """
    whole = _protobuf().columns.FromString(message)
    parts = whole.records
    data, keys, hash_keys = parts.data, parts.partition_key_index, parts.explicit_hash_key_index
    length = len(data)
    if not length and whole.HasField("records"):
        raise _protobuf().decode_error("no sub-record has data")
    if len(keys) != length or (hash_keys and len(hash_keys) != length):
        return None
    explicit = hash_keys if hash_keys and whole.explicit_hash_key_table else None

    def read(first: int, stop: int) -> Columns:
        return data[first:stop], keys[first:stop], None if explicit is None else explicit[first:stop]

    return length, read, whole


def _columns_one_by_one(message: bytes) -> _Parsed | None:
    """Parse the message sub-record by sub-record. This is for messages in which only some sub-records have an explicit hash key.

    Return None if a sub-record has no data or no partition key.

    Raises: DecodeError if the message is malformed.
    """
    whole = _protobuf().whole.FromString(message)
    if not whole.IsInitialized():
        return None
    has_hash_keys = bool(whole.explicit_hash_key_table)

    def read(first: int, stop: int) -> Columns:
        parts = whole.records[first:stop]
        return (
            [part.data for part in parts],
            [part.partition_key_index for part in parts],
            [_hash_key_index(part) for part in parts] if has_hash_keys else None,
        )

    return len(whole.records), read, whole


def _hash_key_index(part: Any) -> int | None:
    return part.explicit_hash_key_index if part.HasField("explicit_hash_key_index") else None


def _texts(keys: Sequence[bytes]) -> list[str]:
    return list(map(bytes.decode, keys))


class _Protobuf(NamedTuple):
    """The classes of protobuf messages that read and write an aggregate.

    - `whole`: AggregatedRecord as the KPL defines it, with a message for each sub-record.
    - `columns`: a message that parses the same bytes into three columns, without an object for each sub-record. Its sub-record is a single
      message with repeated fields. If protobuf finds several sub-records, it merges them, and appends their fields ("Last One Wins").
    - `decode_error`: the error for a malformed message.
    """

    whole: Any
    columns: Any
    decode_error: type[Exception]


@functools.cache
def _protobuf() -> _Protobuf:
    """Return the classes of protobuf messages. The first call makes them."""
    # Imported with the first aggregate, because most processes that read never see one.
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    kinds = descriptor_pb2.FieldDescriptorProto

    def message(package: str, of_record: int, records: int) -> Any:
        """Return a class for AggregatedRecord.

        - `of_record`: the protobuf label (repeated or not) of the fields of a sub-record.
        - `records`: the protobuf label of the field with the sub-records.
        """
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package)
        record = file.message_type.add(name="Record")
        explicit = kinds.LABEL_REPEATED if of_record == kinds.LABEL_REPEATED else kinds.LABEL_OPTIONAL
        record.field.add(name="partition_key_index", number=1, type=kinds.TYPE_UINT64, label=of_record)
        record.field.add(name="explicit_hash_key_index", number=2, type=kinds.TYPE_UINT64, label=explicit)
        record.field.add(name="data", number=3, type=kinds.TYPE_BYTES, label=of_record)
        whole = file.message_type.add(name="AggregatedRecord")
        whole.field.add(name="partition_key_table", number=1, type=kinds.TYPE_BYTES, label=kinds.LABEL_REPEATED)
        whole.field.add(name="explicit_hash_key_table", number=2, type=kinds.TYPE_BYTES, label=kinds.LABEL_REPEATED)
        whole.field.add(
            name="records", number=3, type=kinds.TYPE_MESSAGE, label=records, type_name=f".{package}.Record"
        )
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.AggregatedRecord"))

    return _Protobuf(
        message("recordpublisher.kpl", kinds.LABEL_REQUIRED, kinds.LABEL_REPEATED),
        message("recordpublisher.kpl.columns", kinds.LABEL_REPEATED, kinds.LABEL_OPTIONAL),
        DecodeError,
    )
