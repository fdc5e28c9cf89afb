"""The KPL's aggregation format: magic, a protobuf AggregatedRecord, MD5 (aggregation-format.md of the KPL)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from itertools import compress, repeat
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from ..records import UserRecord
from ..shards import hash_key_from
from .loop_yielder import STEP, in_steps

MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST_BYTES = 16


class SubRecords(NamedTuple):
    """Consecutive sub-records as columns. `hash_key_indexes` is None where none of the aggregate has an explicit hash key."""

    data: list[bytes]
    key_indexes: list[int]
    hash_key_indexes: Sequence[int | None] | None

    def slice(self, first: int, stop: int) -> SubRecords:
        """The sub-records from `first` up to, not including, `stop`."""
        if first == 0 and stop >= len(self.data):
            return self
        data, key_indexes, indexes = self
        return SubRecords(data[first:stop], key_indexes[first:stop], None if indexes is None else indexes[first:stop])


class Aggregate(NamedTuple):
    """An AggregatedRecord: its two key tables, and its sub-records, which are read in slices (there may be millions).

    `read(first, stop)` returns the sub-records from `first` up to, not including, `stop`; their indexes refer to the tables.
    """

    length: int
    read: Callable[[int, int], SubRecords]
    partition_keys: list[str]
    explicit_hash_keys: list[str]

    def user_records(
        self, parts: SubRecords, record: UserRecord, first: int, owned: Sequence[bool] | None = None
    ) -> list[UserRecord]:
        """Those of the sub-records that are `owned` (None: all) as user records. `first`: the sub-sequence number of the first one.

        They share sequence number and arrival. Their sub-sequence numbers count sub-records that are not owned, too.
        """
        keys, hash_keys, indexes = self.partition_keys, self.explicit_hash_keys, parts.hash_key_indexes
        records = map(
            UserRecord,
            parts.data,
            repeat(record.sequence_number),
            repeat(record.arrival),
            [keys[index] for index in parts.key_indexes],
            repeat(None) if indexes is None else [None if at is None else hash_keys[at] for at in indexes],
            range(first, first + len(parts.data)),
        )
        return list(records if owned is None else compress(records, owned))


async def parse_aggregate(data: bytes) -> Aggregate | None:
    """Parse the aggregate in a record's data. None: magic, digest or message is wrong, so it is a plain record (S4, as in the KCL).

    What protobuf does is one step, everything else is done in steps of `STEP`.
    """
    if not data.startswith(MAGIC) or len(data) < len(MAGIC) + _DIGEST_BYTES:
        return None
    message, digest = data[len(MAGIC) : -_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.md5(message, usedforsecurity=False).digest() != digest:
        return None
    try:
        parsed = _columns(message) or _columns_one_by_one(message)
        if parsed is None:
            return None
        length, read, whole = parsed
        table, hash_table = whole.partition_key_table, whole.explicit_hash_key_table
        keys = _texts(table[:]) if len(table) <= STEP else await in_steps(_texts, table)
        hash_keys = _texts(hash_table[:]) if len(hash_table) <= STEP else await in_steps(_texts, hash_table)
    except (DecodeError, UnicodeDecodeError):
        return None
    return await _checked(length, read, keys, hash_keys)


def encode_aggregate(parts: Sequence[tuple[str, str | None, bytes]]) -> bytes:
    """Encode an aggregate of (partition key, explicit hash key, data). Each key is stored once, in a table."""
    keys: dict[str, int] = {}
    hash_keys: dict[str, int] = {}
    whole = AggregatedRecord()
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
    return MAGIC + message + hashlib.md5(message, usedforsecurity=False).digest()


def hash_key_of(partition_key: str, explicit_hash_key: str | None) -> int:
    """The 128-bit hash key that decides a record's shard."""
    explicit = hash_key_from(explicit_hash_key or "")
    if explicit is not None:
        return explicit
    return int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest(), "big")


async def _checked(
    length: int, read: Callable[[int, int], SubRecords], keys: list[str], hash_keys: list[str]
) -> Aggregate | None:
    """The aggregate; None when an index is outside its table. A short one is read at once: it is cheaper to slice lists."""
    if length <= STEP:
        parts = read(0, length)
        return Aggregate(length, parts.slice, keys, hash_keys) if _indexes_fit(parts, keys, hash_keys) else None
    for first in range(0, length, STEP):
        if not _indexes_fit(read(first, first + STEP), keys, hash_keys):
            return None
        await asyncio.sleep(0)
    return Aggregate(length, read, keys, hash_keys)


def _indexes_fit(parts: SubRecords, keys: Sequence[str], hash_keys: Sequence[str]) -> bool:
    """Whether every index is within its table. An explicit hash key index without a table is ignored."""
    if max(parts.key_indexes, default=-1) >= len(keys):
        return False
    explicit = [index for index in parts.hash_key_indexes or () if index is not None]
    return max(explicit, default=-1) < len(hash_keys)


_Parsed = tuple[int, Callable[[int, int], SubRecords], Any]
"""The number of sub-records, how to read them, and the message with the key tables."""


def _columns(message: bytes) -> _Parsed | None:
    """Parse all columns at once. None: their lengths differ, so they cannot be matched. Raises: DecodeError."""
    whole = AggregatedColumns.FromString(message)
    parts = whole.records
    data, keys, hash_keys = parts.data, parts.partition_key_index, parts.explicit_hash_key_index
    length = len(data)
    if not length and whole.HasField("records"):
        raise DecodeError("no sub-record has data")
    if len(keys) != length or (hash_keys and len(hash_keys) != length):
        return None
    explicit = hash_keys if hash_keys and whole.explicit_hash_key_table else None

    def read(first: int, stop: int) -> SubRecords:
        return SubRecords(data[first:stop], keys[first:stop], None if explicit is None else explicit[first:stop])

    return length, read, whole


def _columns_one_by_one(message: bytes) -> _Parsed | None:
    """Parse record by record: only some have an explicit hash key. None: one lacks data or key. Raises: DecodeError."""
    whole = AggregatedRecord.FromString(message)
    if not whole.IsInitialized():
        return None
    has_hash_keys = bool(whole.explicit_hash_key_table)

    def read(first: int, stop: int) -> SubRecords:
        parts = whole.records[first:stop]
        return SubRecords(
            [part.data for part in parts],
            [part.partition_key_index for part in parts],
            [_hash_key_index(part) for part in parts] if has_hash_keys else None,
        )

    return len(whole.records), read, whole


def _hash_key_index(part: Any) -> int | None:
    return part.explicit_hash_key_index if part.HasField("explicit_hash_key_index") else None


def _texts(keys: Sequence[bytes]) -> list[str]:
    return list(map(bytes.decode, keys))


_Field = descriptor_pb2.FieldDescriptorProto


def _messages(package: str, of_record: int, records: int) -> Any:
    """Make the message class of AggregatedRecord, with the given labels for its sub-records and their fields."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package)
    record = file.message_type.add(name="Record")
    explicit = _Field.LABEL_REPEATED if of_record == _Field.LABEL_REPEATED else _Field.LABEL_OPTIONAL
    record.field.add(name="partition_key_index", number=1, type=_Field.TYPE_UINT64, label=of_record)
    record.field.add(name="explicit_hash_key_index", number=2, type=_Field.TYPE_UINT64, label=explicit)
    record.field.add(name="data", number=3, type=_Field.TYPE_BYTES, label=of_record)
    whole = file.message_type.add(name="AggregatedRecord")
    whole.field.add(name="partition_key_table", number=1, type=_Field.TYPE_BYTES, label=_Field.LABEL_REPEATED)
    whole.field.add(name="explicit_hash_key_table", number=2, type=_Field.TYPE_BYTES, label=_Field.LABEL_REPEATED)
    whole.field.add(name="records", number=3, type=_Field.TYPE_MESSAGE, label=records, type_name=f".{package}.Record")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.AggregatedRecord"))


AggregatedRecord = _messages("recordpublisher.kpl", _Field.LABEL_REQUIRED, _Field.LABEL_REPEATED)
"""As the KPL defines it: a message for each sub-record."""
AggregatedColumns = _messages("recordpublisher.kpl.columns", _Field.LABEL_REPEATED, _Field.LABEL_OPTIONAL)
"""The same bytes, parsed as columns. Here the sub-record message is not repeated but its fields are. Protobuf merges a message that occurs
again with the one before and appends its repeated fields ("Last One Wins"). So the parser fills three columns and makes no object for
each sub-record."""
