"""Packs user records of one shard into one Kinesis record (aggregation-format.md of the KPL, K4)."""

from collections import deque
from collections.abc import Sequence

from recordpublisher.publishers.aggregation.kpl_format import encode_aggregate

from ..pending_record import PendingRecord, size_of

_PART_OVERHEAD = 12
"""Bytes of a part in addition to its data: two tags with lengths of up to three bytes, and an index."""
_KEY_OVERHEAD = 3
"""Bytes of a key in the key table in addition to the key itself."""
_HASH_KEY_BYTES = 39 + _KEY_OVERHEAD + 4
"""Bytes of an explicit hash key in its table, and of the index that points to it."""
_FRAME = 20
"""Bytes of magic number and digest."""


class KplAggregator:
    """Makes Kinesis records of at most `max_records` user records and `max_bytes` bytes.

    An aggregate carries the partition key and the hash key of its first part, so it is stored in the shard of all its parts.
    """

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self.max_records = max_records
        self.max_bytes = max_bytes

    def take_parts(
        self, queue: deque[PendingRecord], max_bytes: int, *, of_one_key: bool = False
    ) -> list[PendingRecord]:
        """Remove the user records of the next Kinesis record from a queue. An existing aggregate, or a large record, is taken alone.

        - `of_one_key`: whether the queue holds the records of one partition key, whose explicit hash keys may lead to several shards.
        """
        first = queue.popleft()
        parts, keys = [first], {first.partition_key}
        size = _FRAME + _bytes_of(first, is_new_key=True)
        max_bytes = min(max_bytes, self.max_bytes)
        while queue and not first.parts and len(parts) < self.max_records:
            following = queue[0]
            size += _bytes_of(following, is_new_key=following.partition_key not in keys)
            may_differ_in_shard = of_one_key and following.explicit_hash_key != first.explicit_hash_key
            if following.parts or may_differ_in_shard or size > max_bytes:
                break
            keys.add(following.partition_key)
            parts.append(queue.popleft())
        return parts

    def aggregate(self, parts: Sequence[PendingRecord]) -> PendingRecord:
        """Return one Kinesis record of these user records. A single user record is returned unchanged."""
        first = parts[0]
        if len(parts) == 1:
            return first
        data = encode_aggregate([(part.partition_key, part.explicit_hash_key, part.data) for part in parts])
        size = size_of(data, first.partition_key)
        return PendingRecord(data, first.partition_key, str(first.hash_key), size, parts=tuple(parts))


def split_aggregate(record: PendingRecord) -> tuple[PendingRecord, ...]:
    """Return the records to queue after a reshard: the parts of an aggregate.

    If all parts have the same keys, return the aggregate itself.
    """
    first = record.user_records[0]
    if all(
        (part.partition_key, part.explicit_hash_key) == (first.partition_key, first.explicit_hash_key)
        for part in record.parts
    ):
        return (record,)
    return record.parts


def _bytes_of(part: PendingRecord, *, is_new_key: bool) -> int:
    """Return the most bytes that a part adds to an aggregate. A key is in the key table only once."""
    size = (part.size + _KEY_OVERHEAD if is_new_key else len(part.data)) + _PART_OVERHEAD
    return size if part.explicit_hash_key is None else size + _HASH_KEY_BYTES
