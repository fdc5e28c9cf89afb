"""Holds one Kinesis record until it is acknowledged, and checks that the service will accept it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from recordpublisher.plugins.sinks.queued_writes import SourceShard
from recordpublisher.publishers.aggregation.kpl_format import hash_key_of
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.service_limits import PARTITION_KEY_CHARACTERS
from recordpublisher.publishers.shards import Shard, hash_key_from


class PendingRecord(msgspec.Struct, gc=False):
    """One user record, or an aggregate of several (`parts`).

    - `size`: bytes of data and key, as the service counts them.
    - `epoch`: the number of flushes requested before it was accepted.
    - `attempts`: consecutive failed attempts.
    - `failed_at`: time of the last failed attempt (seconds of the clock).
    - `failing_for`: seconds that count as the outage of this record.
    - `source`: the shard that a job has read the record from; None if no job has read it.
    - `origin`: the record that was read, and its shard, if the job writes a dead letter of a record that cannot be put.
    - `context`: given to `put`, for the `FailedRecord` of a record that cannot be put.
    """

    data: bytes
    partition_key: str
    explicit_hash_key: str | None
    size: int
    epoch: int = 0
    attempts: int = 0
    failed_at: float = 0.0
    failing_for: float = 0.0
    parts: tuple[PendingRecord, ...] = ()
    source: SourceShard | None = None
    origin: tuple[Shard, UserRecord] | None = None
    context: object = None

    @property
    def user_records(self) -> tuple[PendingRecord, ...]:
        """The user records that this Kinesis record contains."""
        return self.parts or (self,)

    @property
    def hash_key(self) -> int:
        """The number that decides the shard."""
        return hash_key_of(self.partition_key, self.explicit_hash_key)


def size_of(data: bytes, partition_key: str) -> int:
    """Return the bytes of data and key, as the service counts them."""
    return len(data) + (
        len(partition_key) if partition_key.isascii() else len(partition_key.encode(errors="surrogatepass"))
    )


def is_obviously_valid(record: PendingRecord, max_record_bytes: int) -> bool:
    """Return whether the record is valid, with a key in ASCII and no explicit hash key.

    This check is cheap, and nearly every record passes it.
    """
    key = record.partition_key
    is_sized = 0 < len(key) <= PARTITION_KEY_CHARACTERS and record.size <= max_record_bytes
    return is_sized and key.isascii() and record.explicit_hash_key is None


def are_obviously_valid(records: Sequence[PendingRecord], max_record_bytes: int) -> bool:
    """Return whether each record passes `is_obviously_valid`; False without a record."""
    keys = [record.partition_key for record in records]
    lengths = [len(key) for key in keys]
    return (
        min(lengths, default=0) > 0
        and max(lengths) <= PARTITION_KEY_CHARACTERS
        and "".join(keys).isascii()
        and max([record.size for record in records]) <= max_record_bytes
        and [record.explicit_hash_key for record in records].count(None) == len(records)
    )


def rejection_reason(record: PendingRecord, max_record_bytes: int) -> str | None:
    """Return why the service would reject this record, and with it the whole call; None if the record is valid."""
    if not 0 < len(record.partition_key) <= PARTITION_KEY_CHARACTERS:
        return f"its partition key has {len(record.partition_key)} characters, but 1 to {PARTITION_KEY_CHARACTERS} are allowed"
    if not _is_unicode(record.partition_key):
        return f"its partition key {record.partition_key!a} has half a surrogate pair, which is not valid UTF-8"
    if record.size > max_record_bytes:
        return f"data and key have {record.size} bytes, the stream accepts {max_record_bytes} (MaxRecordSizeInKiB)"
    explicit = record.explicit_hash_key
    if explicit is not None and not _is_hash_key(explicit):
        return f"its explicit hash key is {explicit!r}, but must be a decimal number from 0 to 2^128 - 1"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_hash_key(text: str) -> bool:
    return hash_key_from(text) is not None and (text == "0" or not text.startswith("0"))
