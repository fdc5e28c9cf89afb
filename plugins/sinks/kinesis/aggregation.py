"""KPL aggregation: many user records in one Kinesis record (aggregation-format.md of the KPL), written for one shard (K4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ....publishers.kpl import sealed_aggregate
from .outgoing import Outgoing, size_of

_PART_OVERHEAD = 8
"""Bytes of an aggregate for each part besides data and key: field tags, lengths, indexes; a little more than they are."""
_FRAME = 20
"""Magic and digest."""


class Aggregation:
    """Makes Kinesis records of at most so many user records and bytes.

    An aggregate carries the partition key and the hash key of its first part, so that it goes to the shard of all of them.
    """

    def __init__(self, most_records: int, most_bytes: int) -> None:
        self.most_records = most_records
        self.most_bytes = most_bytes

    def cut(self, queue: deque[Outgoing], most_bytes: int, *, of_one_key: bool = False) -> list[Outgoing]:
        """Take what makes one Kinesis record off a queue; what is an aggregate already, or too large, goes alone.

        `of_one_key`: the queue is of one partition key, and its records may be for several shards by their explicit hash keys.
        """
        parts = [queue.popleft()]
        size = _FRAME + parts[0].size + _PART_OVERHEAD
        most_bytes = min(most_bytes, self.most_bytes)
        while queue and not parts[0].parts and len(parts) < self.most_records:
            following = queue[0]
            size += following.size + _PART_OVERHEAD + (39 if following.explicit_hash_key else 0)
            is_elsewhere = of_one_key and following.explicit_hash_key != parts[0].explicit_hash_key
            if following.parts or is_elsewhere or size > most_bytes:
                break
            parts.append(queue.popleft())
        return parts

    def record_of(self, parts: Sequence[Outgoing]) -> Outgoing:
        """One Kinesis record of these user records; of one alone it is the record itself."""
        first = parts[0]
        if len(parts) == 1:
            return first
        data = sealed_aggregate([(part.partition_key, part.explicit_hash_key, part.data) for part in parts])
        size = size_of(data, first.partition_key)
        return Outgoing(data, first.partition_key, str(first.hash_key), size, parts=tuple(parts))


def apart(outgoing: Outgoing) -> tuple[Outgoing, ...]:
    """What goes to the lanes of a newer shard map: the parts, unless they have one hash key and so stay together."""
    first = outgoing.user_records[0]
    if all((part.partition_key, part.explicit_hash_key) == (first.partition_key, first.explicit_hash_key) for part in outgoing.parts):
        return (outgoing,)
    return outgoing.parts
