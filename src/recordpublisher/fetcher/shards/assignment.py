"""Decides which subtask reads which shard (S9)."""

import zlib
from collections.abc import Callable

from recordpublisher.publishers.shards import Shard

ShardAssigner = Callable[[Shard, int], int]
"""Returns the number of the subtask that owns a shard, from the shard and the parallelism."""


def uniform(shard: Shard, parallelism: int) -> int:
    """Assign by the middle of the hash range, rotated by a crc32 of the stream (FLINK-24639).

    Python's `hash` is not used, because it differs from process to process.
    """
    index = shard.hash_range.middle * parallelism >> 128
    return (index + zlib.crc32(shard.stream.encode())) % parallelism
