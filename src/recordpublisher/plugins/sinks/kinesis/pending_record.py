"""PendingRecord: one Kinesis record on its way, and the check that the service would take it."""

from __future__ import annotations

import msgspec

from recordpublisher.publishers.aggregation.kpl_format import hash_key_of
from recordpublisher.publishers.shards import MAX_HASH_KEY

MAX_KEY_LENGTH = 256
"""Characters of a partition key (service limit)."""


class PendingRecord(msgspec.Struct):
    """One user record, or an aggregate of several (`parts`), until it is acknowledged.

    `size` is what the service counts, bytes of data and key; `epoch` the flushes that were asked for before it was handed over;
    `attempts` its failures in a row.
    """

    data: bytes
    partition_key: str
    explicit_hash_key: str | None
    size: int
    epoch: int = 0
    attempts: int = 0
    parts: tuple[PendingRecord, ...] = ()

    @property
    def user_records(self) -> tuple[PendingRecord, ...]:
        """The user records in it."""
        return self.parts or (self,)

    @property
    def hash_key(self) -> int:
        """What decides the shard."""
        return hash_key_of(self.partition_key, self.explicit_hash_key)


def size_of(data: bytes, partition_key: str) -> int:
    """Bytes of data and key, as the service counts them."""
    return len(data) + (len(partition_key) if partition_key.isascii() else len(partition_key.encode()))


def is_obviously_valid(outgoing: PendingRecord, max_record_bytes: int) -> bool:
    """Whether nothing can be said against the record; the quick answer for nearly all."""
    is_sized = 0 < len(outgoing.partition_key) <= MAX_KEY_LENGTH and outgoing.size <= max_record_bytes
    return is_sized and outgoing.explicit_hash_key is None


def rejection_reason(outgoing: PendingRecord, max_record_bytes: int) -> str | None:
    """Why the service would refuse this record, and with it the whole call; None when it would not."""
    if not 0 < len(outgoing.partition_key) <= MAX_KEY_LENGTH:
        return f"its partition key has {len(outgoing.partition_key)} characters; valid: 1 to {MAX_KEY_LENGTH}"
    if outgoing.size > max_record_bytes:
        return f"data and key have {outgoing.size} bytes, the stream takes {max_record_bytes} (MaxRecordSizeInKiB)"
    explicit = outgoing.explicit_hash_key
    if explicit is not None and not _is_hash_key(explicit):
        return f"its explicit hash key is {explicit!r}; valid: a decimal number from 0 to 2^128 - 1"
    return None


def _is_hash_key(text: str) -> bool:
    is_plain = text.isascii() and text.isdecimal() and (text == "0" or not text.startswith("0"))
    return is_plain and int(text) <= MAX_HASH_KEY
