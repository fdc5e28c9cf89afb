"""The KPL's aggregation format: magic, a protobuf AggregatedRecord, MD5 (aggregation-format.md of the KPL)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from .records import UserRecord

MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST_BYTES = 16
_Field = descriptor_pb2.FieldDescriptorProto


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An AggregatedRecord: the sub-records' messages and the two tables that their indexes point into."""

    parts: Sequence[Any]
    partition_keys: list[str]
    explicit_hash_keys: list[str]

    def sub_records(self, record: UserRecord, first: int, stop: int) -> list[UserRecord]:
        """The sub-records `first` to `stop` (not included) as user records; they share sequence number and arrival."""
        sequence, arrival, keys, hash_keys = (
            record.sequence_number, record.arrival, self.partition_keys, self.explicit_hash_keys,
        )  # fmt: skip
        return [
            UserRecord(
                part.data,
                sequence,
                arrival,
                keys[part.partition_key_index],
                hash_keys[part.explicit_hash_key_index]
                if hash_keys and part.HasField("explicit_hash_key_index")
                else None,
                number,
            )
            for number, part in enumerate(self.parts[first:stop], first)
        ]


def parse_aggregate(data: bytes) -> Aggregate | None:
    """The aggregate in a record's data, or None: wrong magic, digest or message make it a plain record (S4, as the KCL does)."""
    if not data.startswith(MAGIC) or len(data) < len(MAGIC) + _DIGEST_BYTES:
        return None
    message, digest = data[len(MAGIC) : -_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.md5(message, usedforsecurity=False).digest() != digest:
        return None
    try:
        whole = _AggregatedRecord.FromString(message)
        aggregate = Aggregate(
            whole.records,
            [key.decode() for key in whole.partition_key_table],
            [key.decode() for key in whole.explicit_hash_key_table],
        )
    except (DecodeError, UnicodeDecodeError):
        return None
    return aggregate if whole.IsInitialized() and _indexes_fit(aggregate) else None


def hash_key_of(partition_key: str, explicit_hash_key: str | None) -> int:
    """The 128-bit hash key that decides a record's shard."""
    if explicit_hash_key and explicit_hash_key.isdecimal():
        return int(explicit_hash_key)
    return int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest(), "big")


def _indexes_fit(aggregate: Aggregate) -> bool:
    """Whether every index points into its table; an explicit hash key index without any table says nothing."""
    keys, hash_keys = aggregate.partition_keys, aggregate.explicit_hash_keys
    if max([part.partition_key_index for part in aggregate.parts], default=-1) >= len(keys):
        return False
    return not hash_keys or max([part.explicit_hash_key_index for part in aggregate.parts], default=-1) < len(hash_keys)


def _message_class() -> Any:
    """The class of AggregatedRecord, from a descriptor made here: no generated file, no protoc; unknown fields (tags) are skipped.

    The key tables are strings in the KPL's file; as bytes their UTF-8 is checked here, by every protobuf runtime alike.
    """
    file = descriptor_pb2.FileDescriptorProto(name="recordpublisher_kpl.proto", package="recordpublisher.kpl")
    record = file.message_type.add(name="Record")
    record.field.add(name="partition_key_index", number=1, type=_Field.TYPE_UINT64, label=_Field.LABEL_REQUIRED)
    record.field.add(name="explicit_hash_key_index", number=2, type=_Field.TYPE_UINT64, label=_Field.LABEL_OPTIONAL)
    record.field.add(name="data", number=3, type=_Field.TYPE_BYTES, label=_Field.LABEL_REQUIRED)
    whole = file.message_type.add(name="AggregatedRecord")
    whole.field.add(name="partition_key_table", number=1, type=_Field.TYPE_BYTES, label=_Field.LABEL_REPEATED)
    whole.field.add(name="explicit_hash_key_table", number=2, type=_Field.TYPE_BYTES, label=_Field.LABEL_REPEATED)
    whole.field.add(
        name="records",
        number=3,
        type=_Field.TYPE_MESSAGE,
        label=_Field.LABEL_REPEATED,
        type_name=".recordpublisher.kpl.Record",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("recordpublisher.kpl.AggregatedRecord"))


_AggregatedRecord = _message_class()
