"""Which subtask reads which shard (S9)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable

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


def monitor_of(owner: int, parallelism: int) -> int:
    """The subtask that looks after the shards of `owner`: the first one, for those of the first the second.

    One of them reads the stored positions of the whole job, and a subtask that is gone cannot look after its own.
    """
    return 0 if owner != 0 else min(1, parallelism - 1)


def monitored_shards(
    listed: Iterable[Shard], own: Collection[str], assigner: ShardAssigner, subtask: int, parallelism: int
) -> dict[str, tuple[Shard, int]]:
    """The listed shards that this subtask looks after for others, by key, each with its owner."""
    owners = {shard.key: (shard, assigner(shard, parallelism)) for shard in listed if shard.key not in own}
    return {key: found for key, found in owners.items() if monitor_of(found[1], parallelism) == subtask}


def missing_reader_reason(
    owner: int, parallelism: int, missing: Collection[int], left_out: Collection[int], has_stored_positions: bool
) -> str | None:
    """Who should read a shard of another subtask; None when nobody here can judge whether it is read.

    That needs the owner's stored position, or the certainty that there is no owner: an assigner that names none, or a subtask that is
    has not joined. Without either nobody knows what another subtask has emitted.
    """
    if not 0 <= owner < parallelism:
        return f"nobody owns it: it was given to subtask {owner} of {parallelism}"
    if owner in missing:
        return f"its owner, subtask {owner}, has not joined"
    if not has_stored_positions:
        return None
    return f"its owner, subtask {owner}, {'is not heard of' if owner in left_out else 'stores no progress'}"
