"""KPL aggregation: many user records in one Kinesis record (aggregation-format.md of the KPL), written for one shard (K4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from recordpublisher.publishers.aggregation.kpl_format import encode_aggregate

from ..pending_record import PendingRecord, size_of

_PART_OVERHEAD = 12
"""Bytes of a part besides its data: two tags with lengths of up to three bytes, and an index."""
_KEY_OVERHEAD = 3
"""Bytes of a key in its table besides itself."""
_HASH_KEY_BYTES = 39 + _KEY_OVERHEAD + 4
"""Of an explicit hash key in its table, and of the index that points to it."""
_FRAME = 20
"""Magic and digest."""


class KplAggregator:
    """Makes Kinesis records of at most so many user records and bytes.

    An aggregate carries the partition key and the hash key of its first part, so that it goes to the shard of all of them.
    """

    def __init__(self, most_records: int, most_bytes: int) -> None:
        self.most_records = most_records
        self.most_bytes = most_bytes

    def cut(self, queue: deque[PendingRecord], most_bytes: int, *, of_one_key: bool = False) -> list[PendingRecord]:
        """Take what makes one Kinesis record off a queue; what is an aggregate already, or too large, goes alone.

        `of_one_key`: the queue is of one partition key, and its records may be for several shards by their explicit hash keys.
        """
        first = queue.popleft()
        parts, keys = [first], {first.partition_key}
        size = _FRAME + _bytes_of(first, is_new_key=True)
        most_bytes = min(most_bytes, self.most_bytes)
        while queue and not first.parts and len(parts) < self.most_records:
            following = queue[0]
            size += _bytes_of(following, is_new_key=following.partition_key not in keys)
            is_elsewhere = of_one_key and following.explicit_hash_key != first.explicit_hash_key
            if following.parts or is_elsewhere or size > most_bytes:
                break
            keys.add(following.partition_key)
            parts.append(queue.popleft())
        return parts

    def record_of(self, parts: Sequence[PendingRecord]) -> PendingRecord:
        """One Kinesis record of these user records; of one alone it is the record itself."""
        first = parts[0]
        if len(parts) == 1:
            return first
        data = encode_aggregate([(part.partition_key, part.explicit_hash_key, part.data) for part in parts])
        size = size_of(data, first.partition_key)
        return PendingRecord(data, first.partition_key, str(first.hash_key), size, parts=tuple(parts))


def split_aggregate(outgoing: PendingRecord) -> tuple[PendingRecord, ...]:
    """What goes to the lanes of a newer shard map: the parts, unless they have one hash key and so stay together."""
    first = outgoing.user_records[0]
    if all(
        (part.partition_key, part.explicit_hash_key) == (first.partition_key, first.explicit_hash_key)
        for part in outgoing.parts
    ):
        return (outgoing,)
    return outgoing.parts


def _bytes_of(part: PendingRecord, *, is_new_key: bool) -> int:
    """What a part adds to an aggregate, at most; its key stands in the table once."""
    size = (part.size + _KEY_OVERHEAD if is_new_key else len(part.data)) + _PART_OVERHEAD
    return size if part.explicit_hash_key is None else size + _HASH_KEY_BYTES
