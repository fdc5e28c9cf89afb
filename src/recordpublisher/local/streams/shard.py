"""A shard: its hash range, its parents and children, and the time in which it was open."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from math import inf

from ..api_errors import invalid_argument
from .shard_log import SequenceNumbers, ShardLog


def shard_id(index: int) -> str:
    """Return the id of a stream's `index`-th shard."""
    return f"shardId-{index:012d}"


def canonical_id(spelling: str) -> str:
    """Return the full form of a shard's id. Only its number counts, so shardId-7 is shardId-000000000007."""
    number = re.fullmatch(r"(?:[^-]*-)?([0-9]+)", spelling)
    return spelling if number is None else shard_id(int(number[1]))


@dataclass(slots=True, eq=False)
class Shard:
    """Owns its log and its end. It is open in the epochs from `epoch` up to, but not including, `closed_epoch`.

    An epoch is a time in ms, increased where needed so that a child's epoch is always later than its parents' epochs. So shards that are
    split in the millisecond of their creation still have an order.
    """

    id: str
    index: int
    hash_range: HashRange
    epoch: int
    parents: tuple[Shard, ...] = ()
    children: list[Shard] = field(default_factory=list)
    closed_epoch: int | None = None
    ending_counter: int | None = None
    log: ShardLog = field(init=False)

    def __post_init__(self) -> None:
        self.log = ShardLog(SequenceNumbers.of_shard(self.epoch, self.index))

    @property
    def is_open(self) -> bool:
        """Whether the shard accepts records."""
        return self.closed_epoch is None

    def was_open_at(self, epoch: int) -> bool:
        """Return whether the shard accepted records at that time."""
        return self.epoch <= epoch and self.is_open_after(epoch)

    def is_open_after(self, epoch: float) -> bool:
        """Return whether the shard accepted records at that time or later."""
        return self.closed_epoch is None or self.closed_epoch > epoch

    def close(self, epoch: int) -> None:
        """Stop accepting records; stored records stay readable."""
        self.ending_counter = self.log.mark(epoch)
        self.closed_epoch = epoch

    def describe(self, as_of: float = inf) -> dict[str, object]:
        """Return the shard as ListShards shows it now, or showed it at the time `as_of`."""
        numbers = {"StartingSequenceNumber": self.log.numbers.text(0)}
        if self.ending_counter is not None and not self.is_open_after(as_of):
            numbers["EndingSequenceNumber"] = self.log.numbers.text(self.ending_counter)
        ancestry = zip(("ParentShardId", "AdjacentParentShardId"), self.parents, strict=False)
        return {
            "ShardId": self.id,
            "HashKeyRange": self._hash_key_range(),
            "SequenceNumberRange": numbers,
            **{name: parent.id for name, parent in ancestry},
        }

    def describe_children(self) -> list[dict[str, object]]:
        """Return ChildShards as the last response of a closed shard shows them."""
        return [
            {
                "ShardId": child.id,
                "ParentShards": [parent.id for parent in child.parents],
                "HashKeyRange": child._hash_key_range(),
            }
            for child in self.children
        ]

    def _hash_key_range(self) -> dict[str, str]:
        return {"StartingHashKey": str(self.hash_range.start), "EndingHashKey": str(self.hash_range.end)}


HASH_KEYS = 1 << 128
HASH_KEY_DIGITS = 39


@dataclass(frozen=True, slots=True)
class HashRange:
    """The hash keys from `start` to `end`, both included."""

    start: int
    end: int

    def __contains__(self, hash_key: int) -> bool:
        return self.start <= hash_key <= self.end


def uniform_ranges(count: int) -> list[HashRange]:
    """Divide the hash keys into `count` ranges of the same width. The last range also contains the remainder."""
    width = HASH_KEYS // count
    starts = [i * width for i in range(count)]
    return [HashRange(start, end - 1) for start, end in zip(starts, [*starts[1:], HASH_KEYS], strict=True)]


def hash_of(partition_key: str) -> int:
    """Return the MD5 of the key as the service uses it: a big-endian 128-bit number."""
    return int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest(), "big")


def explicit_hash(text: str) -> int:
    """Return an explicit hash key as a number. Raises: InvalidArgumentException if it is not a valid hash key."""
    if text.isdecimal() and len(text) <= HASH_KEY_DIGITS and int(text) < HASH_KEYS:
        return int(text)
    raise invalid_argument(
        f"Invalid ExplicitHashKey. ExplicitHashKey must be in the range: [0, 2^128-1]. Specified value was {text}"
    )
