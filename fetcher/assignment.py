"""Which subtask reads which shard (S9)."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from ..publishers.shards import Shard

ShardAssigner = Callable[[Shard, int], int]
"""From a shard and the parallelism to the subtask that owns it."""


def uniform(shard: Shard, parallelism: int) -> int:
    """By the middle of the hash range, rotated by a crc32 of the stream (FLINK-24639; Python's `hash` differs per process)."""
    place = shard.hash_range.middle * parallelism >> 128
    return (place + zlib.crc32(shard.stream.encode())) % parallelism
