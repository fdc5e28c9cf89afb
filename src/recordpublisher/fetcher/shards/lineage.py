"""Parents, ancestors and children of shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from recordpublisher.publishers.shards import Shard


def parent_keys(shard: Shard) -> list[str]:
    """`Shard.key` of each parent: one after a split, two after a merge."""
    return [f"{shard.stream}/{parent}" for parent in shard.parents]


def ancestor_keys(shards: Iterable[Shard], listed: Mapping[str, Shard]) -> set[str]:
    """`Shard.key` of every ancestor of `shards`. The parents of a shard that is not `listed` are unknown."""
    found: set[str] = set()
    to_visit = [parent for shard in shards for parent in parent_keys(shard)]
    while to_visit:
        key = to_visit.pop()
        if key not in found:
            found.add(key)
            to_visit += parent_keys(listed[key]) if key in listed else []
    return found


def children_of(parent: Shard, listed: Iterable[Shard]) -> list[Shard]:
    """The listed children of a shard."""
    return [child for child in listed if child.stream == parent.stream and parent.shard_id in child.parents]
