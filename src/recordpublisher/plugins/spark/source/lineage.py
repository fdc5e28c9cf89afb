"""Parents and children in an offset: who may start, who is new, who is over (S2, S3, S5)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard

from .batch_offset import ShardOffset

Shards = Mapping[str, ShardOffset]


def parent_keys(shard: Shard) -> list[str]:
    """`Shard.key` of each parent."""
    return [f"{shard.stream}/{parent}" for parent in shard.parents]


def is_startable(entry: ShardOffset, shards: Shards) -> bool:
    """Whether every parent was read to its end; one that is not in the offset was finished, or is no longer listed (S2)."""
    return all(parent not in shards or shards[parent].state.ended for parent in parent_keys(entry.shard))


def children_of(entry: ShardOffset, shards: Shards) -> list[ShardOffset]:
    """The known children."""
    return [other for other in shards.values() if entry.key in parent_keys(other.shard)]


def unread_shard(shard: Shard, start: StartingPosition) -> ShardOffset:
    """A shard that nothing was read of."""
    return ShardOffset(shard, ShardState(start=start, parents=shard.parents))


def new_shards(listed: Collection[Shard], shards: Shards, finished: Collection[str]) -> list[Shard]:
    """The listed shards that are new: neither in the offset, nor an ancestor of one that is (such a one was finished, S5), nor
    `finished` by this process (a listing may be older than the offset)."""
    lineage = {shard.key: parent_keys(shard) for shard in listed}
    ancestors: set[str] = set()
    open_ends = [parent for entry in shards.values() for parent in parent_keys(entry.shard)]
    while open_ends:
        ancestor = open_ends.pop()
        if ancestor not in ancestors:
            ancestors.add(ancestor)
            open_ends.extend(lineage.get(ancestor, ()))
    return [shard for shard in listed if shard.key not in shards and shard.key not in ancestors | set(finished)]


def with_new_shards(shards: Shards, found: Iterable[Shard]) -> dict[str, ShardOffset]:
    """With the shards found while the job runs; they are read from TRIM_HORIZON, once their parents have ended (S3)."""
    known = dict(shards)
    for shard in found:
        known.setdefault(shard.key, unread_shard(shard, StartingPosition.trim_horizon()))
    return known


def with_started_children(shards: Shards) -> dict[str, ShardOffset]:
    """Children that may start inherit the watermark of their parents, and ended shards whose children all may start are
    dropped: an offset holds the living, not the history."""
    families = _children_by_parent(shards)
    inherited = {key: _heir(entry, shards) for key, entry in shards.items()}
    return {key: entry for key, entry in inherited.items() if not _is_over(entry, families, shards)}


def _children_by_parent(shards: Shards) -> dict[str, list[ShardOffset]]:
    families: dict[str, list[ShardOffset]] = {}
    for entry in shards.values():
        for parent in parent_keys(entry.shard):
            families.setdefault(parent, []).append(entry)
    return families


def _is_over(entry: ShardOffset, families: Mapping[str, list[ShardOffset]], shards: Shards) -> bool:
    children = families.get(entry.key, [])
    return entry.state.ended and bool(children) and all(is_startable(child, shards) for child in children)


def _heir(entry: ShardOffset, shards: Shards) -> ShardOffset:
    """A child counts from the moment it may start, at the lowest watermark of its parents (W5)."""
    parents = [shards[parent] for parent in parent_keys(entry.shard) if parent in shards]
    marks = [parent.state.watermark for parent in parents if parent.state.watermark is not None]
    if not marks or entry.state.watermark is not None or not is_startable(entry, shards):
        return entry
    return replace(entry, state=replace(entry.state, watermark=min(marks)))
