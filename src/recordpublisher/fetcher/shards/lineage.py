"""Parents and ancestors of shards, by `Shard.key`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from recordpublisher.publishers.shards import Shard


def parent_keys(shard: Shard) -> list[str]:
    """`Shard.key` of each parent: one after a split, two after a merge."""
    return [f"{shard.stream}/{parent}" for parent in shard.parents]


def ancestor_keys(shards: Iterable[Shard], listed: Mapping[str, Shard]) -> set[str]:
    """Every ancestor of `shards`. Behind a shard that is not `listed` the line is not known."""
    found: set[str] = set()
    to_visit = [parent for shard in shards for parent in parent_keys(shard)]
    while to_visit:
        key = to_visit.pop()
        if key not in found:
            found.add(key)
            to_visit += parent_keys(listed[key]) if key in listed else []
    return found
