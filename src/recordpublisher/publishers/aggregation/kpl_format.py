"""The KPL's aggregation format: magic, a protobuf AggregatedRecord, MD5 (aggregation-format.md of the KPL)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from ..records import UserRecord
from ..shards import HashRange, hash_key_from

try:  # CPython's own: for short keys five times as fast as OpenSSL's (which is faster for whole messages)
    from _md5 import md5  # type: ignore[import-not-found]
except ImportError:
    from hashlib import md5

MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An AggregatedRecord as columns with one entry for each sub-record, and the two key tables that the indexes refer to.

    `hash_key_indexes` is None where no sub-record has an explicit hash key.
    """

    data: list[bytes]
    key_indexes: list[int]
    hash_key_indexes: Sequence[int | None] | None
    partition_keys: list[str]
    explicit_hash_keys: list[str]

    def __len__(self) -> int:
        return len(self.data)

    def sub_records(
        self, record: UserRecord, first: int, stop: int, owned: Sequence[bool] | None = None
    ) -> list[UserRecord]:
        """The sub-records from `first` up to, not including, `stop` that are `owned` (None: all) as user records.

        They share sequence number and arrival. Their sub-sequence numbers count sub-records that are not owned, too.
        """
        keys, hash_keys, indexes = self.partition_keys, self.explicit_hash_keys, self.hash_key_indexes
        records = map(
            UserRecord,
            self.data[first:stop],
            repeat(record.sequence_number),
            repeat(record.arrival),
            [keys[index] for index in self.key_indexes[first:stop]],
            repeat(None) if indexes is None else [None if at is None else hash_keys[at] for at in indexes[first:stop]],
            range(first, stop),
        )
        return list(records if owned is None else compress(records, owned[first:stop]))

    def owned_by(self, own: HashRange) -> list[bool] | None:
        """For each sub-record, whether its hash key is in the range; None when all are. Every key of the tables is hashed once.

        An explicit hash key that is no number below 2^128 is ignored: the partition key decides.
        """
        start, end = own.start.to_bytes(16, "big"), own.end.to_bytes(16, "big")
        by_key = [start <= md5(key.encode()).digest() <= end for key in self.partition_keys]  # noqa: S324 - as the service does
        if self.hash_key_indexes is None:
            return None if all(by_key) else [by_key[index] for index in self.key_indexes]
        hash_keys = [hash_key_from(text) for text in self.explicit_hash_keys]
        by_hash_key = [None if key is None else key in own for key in hash_keys]
        explicit = [None if at is None else by_hash_key[at] for at in self.hash_key_indexes]
        owned = [
            by_key[at] if own_key is None else own_key for at, own_key in zip(self.key_indexes, explicit, strict=True)
        ]
        return None if all(owned) else owned


def parse_aggregate(data: bytes) -> Aggregate | None:
    """Parse the aggregate in a record's data. None: magic, digest or message is wrong, so it is a plain record (S4, as in the KCL)."""
    if not data.startswith(MAGIC) or len(data) < len(MAGIC) + _DIGEST_BYTES:
        return None
    message, digest = data[len(MAGIC) : -_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.md5(message, usedforsecurity=False).digest() != digest:
        return None
    try:
        aggregate = _columns(message) or _columns_one_by_one(message)
    except (DecodeError, UnicodeDecodeError):
        return None
    return aggregate if aggregate is not None and _indexes_fit(aggregate) else None


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


def _indexes_fit(aggregate: Aggregate) -> bool:
    """Whether every index is within its table. An explicit hash key index without a table is ignored."""
    if max(aggregate.key_indexes, default=-1) >= len(aggregate.partition_keys):
        return False
    explicit = [index for index in aggregate.hash_key_indexes or () if index is not None]
    return max(explicit, default=-1) < len(aggregate.explicit_hash_keys)


def _columns(message: bytes) -> Aggregate | None:
    """Parse all columns at once. None: their lengths differ, so they cannot be matched. Raises: DecodeError, UnicodeDecodeError."""
    whole = AggregatedColumns.FromString(message)
    parts = whole.records
    data, key_indexes, hash_key_indexes = parts.data[:], parts.partition_key_index[:], parts.explicit_hash_key_index[:]
    if len(key_indexes) != len(data) or (hash_key_indexes and len(hash_key_indexes) != len(data)):
        return None
    hash_keys = _strings(whole.explicit_hash_key_table)
    explicit = hash_key_indexes if hash_keys and hash_key_indexes else None
    return Aggregate(data, key_indexes, explicit, _strings(whole.partition_key_table), hash_keys)


def _columns_one_by_one(message: bytes) -> Aggregate | None:
    """Parse record by record: only some have an explicit hash key. None: one lacks data or key. Raises: as `_columns`."""
    whole = AggregatedRecord.FromString(message)
    parts = list(whole.records)
    hash_keys = _strings(whole.explicit_hash_key_table)
    aggregate = Aggregate(
        [part.data for part in parts],
        [part.partition_key_index for part in parts],
        [_hash_key_index(part) for part in parts] if hash_keys else None,
        _strings(whole.partition_key_table),
        hash_keys,
    )
    return aggregate if whole.IsInitialized() else None


def _hash_key_index(part: Any) -> int | None:
    return part.explicit_hash_key_index if part.HasField("explicit_hash_key_index") else None


def _strings(table: Sequence[bytes]) -> list[str]:
    return list(map(bytes.decode, table[:]))


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
