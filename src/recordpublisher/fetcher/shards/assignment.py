"""Decides which subtask reads which shard (S9), and which subtask monitors it for another one (A2)."""

import zlib
from collections.abc import Callable, Collection, Iterable

from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

ShardAssigner = Callable[[Shard, int], int]
"""Returns the number of the subtask that owns a shard, from the shard and the parallelism."""


def uniform(shard: Shard, parallelism: int) -> int:
    """Assign by the middle of the hash range, rotated by a crc32 of the stream (FLINK-24639).

    Python's `hash` is not used, because it differs from process to process.
    """
    index = shard.hash_range.middle * parallelism >> 128
    return (index + zlib.crc32(shard.stream.encode())) % parallelism


def uniform_assigner(properties: Properties) -> ShardAssigner:
    """Return `uniform`, in the form in which assigners are registered."""
    return uniform


def monitor_of(owner: int, parallelism: int) -> int:
    """Return the subtask that monitors the shards of `owner`: subtask 0, or subtask 1 if `owner` is subtask 0.

    One subtask reads the stored positions of the whole job. A subtask that is gone cannot monitor its own shards.
    """
    return 0 if owner != 0 else min(1, parallelism - 1)


def monitored_shards(
    listed: Iterable[Shard], own: Collection[str], assigner: ShardAssigner, subtask: int, parallelism: int
) -> dict[str, tuple[Shard, int]]:
    """Return the listed shards that this subtask monitors for others, by key, each with its owner."""
    owners = {shard.key: (shard, assigner(shard, parallelism)) for shard in listed if shard.key not in own}
    return {key: found for key, found in owners.items() if monitor_of(found[1], parallelism) == subtask}


def missing_reader_reason(
    owner: int, parallelism: int, missing: Collection[int], timed_out: Collection[int], has_stored_positions: bool
) -> str | None:
    """Return why no subtask may be reading a shard of another subtask, or None if this cannot be judged here.

    It can be judged if the owner's stored positions are known, or if there is certainly no owner: the assigner names
    none, or the owner has not joined.
    """
    if not 0 <= owner < parallelism:
        return f"no subtask owns it: it was assigned to subtask {owner} of {parallelism}"
    if owner in missing:
        return f"its owner, subtask {owner}, has not joined"
    if not has_stored_positions:
        return None
    return f"its owner, subtask {owner}, {'has timed out' if owner in timed_out else 'stores no progress'}"
