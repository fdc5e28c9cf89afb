"""Shard: stream, id, parents, hash range."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_HASH_KEY = 2**128 - 1


@dataclass(frozen=True, slots=True)
class HashRange:
    """Inclusive range of the 128-bit MD5 hash keys that a shard takes."""

    start: int = 0
    end: int = MAX_HASH_KEY

    def __contains__(self, hash_key: int) -> bool:
        return self.start <= hash_key <= self.end

    @property
    def middle(self) -> int:
        """The key in the middle, by which shards go to subtasks (S9)."""
        return (self.start + self.end) // 2


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of one stream, as listed.

    `stream` is the name (also when users gave an ARN), `stream_arn` the ARN when known; `parents` the ids of the
    shard(s) that were split or merged into it; `closed` whether it takes no more records (a closed shard is still read to its end).
    """

    stream: str
    shard_id: str
    parents: tuple[str, ...] = ()
    hash_range: HashRange = field(default_factory=HashRange)
    closed: bool = False
    stream_arn: str | None = None

    @property
    def key(self) -> str:
        """`stream/shard-id`: how state, metrics and logs name a shard."""
        return f"{self.stream}/{self.shard_id}"
