"""Which subtask reads which shard (S9)."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

ShardAssigner = Callable[[Shard, int], int]
"""From a shard and the parallelism to the subtask that owns it; numbers past the last one count round."""


def uniform(shard: Shard, parallelism: int) -> int:
    """By the middle of the hash range, rotated by a crc32 of the stream (FLINK-24639; Python's `hash` differs per process)."""
    place = shard.hash_range.middle * parallelism >> 128
    return (place + zlib.crc32(shard.stream.encode())) % parallelism


class UniformAssigner:
    """`uniform` as a registered assigner. Built as `UniformAssigner(properties)`."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def __call__(self, shard: Shard, parallelism: int) -> int:
        """The subtask that owns the shard."""
        return uniform(shard, parallelism)
