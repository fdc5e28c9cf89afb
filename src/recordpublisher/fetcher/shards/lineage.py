"""Parents, ancestors and children of shards."""

from collections.abc import Callable, Iterable, Mapping

from recordpublisher.publishers.shards import Shard


def parent_keys(shard: Shard) -> list[str]:
    """`Shard.key` of each parent: one after a split, two after a merge."""
    return [f"{shard.stream}/{parent}" for parent in shard.parents]


def parents_ended(parents: Iterable[str], is_ended: Callable[[str], bool]) -> bool:
    """Whether a shard with these parents (`Shard.key`) may start: the last record of each was emitted, after a merge of both (S2).

    `is_ended` says it of one parent. What an unknown parent means differs, so each caller decides that:

    - A subtask (`ShardTable`): it may belong to another subtask, or not be listed yet; it has not ended before somebody has said so.
    - A group (`LeaseTable`): it may be listed later, so it has not ended.
    - A restored job (`restore.py`, `OpenedJob`) and an offset of Spark (`source/reshards.py`): it was read before, or is past retention.
    """
    return all(map(is_ended, parents))


def reachable(start: Iterable[str], following: Callable[[str], Iterable[str]]) -> set[str]:
    """`start`, and all that steps of `following` lead to. Each is looked at once, and without recursion: to a shard behind n splits and
    merges lead 2^n paths."""
    visited: set[str] = set()
    to_visit = [*start]
    while to_visit:
        key = to_visit.pop()
        if key not in visited:
            visited.add(key)
            to_visit += following(key)
    return visited


def ancestor_keys(shards: Iterable[Shard], listed: Mapping[str, Shard]) -> set[str]:
    """`Shard.key` of every ancestor of `shards`. The parents of a shard that is not `listed` are unknown."""
    parents = (parent for shard in shards for parent in parent_keys(shard))
    return reachable(parents, lambda key: parent_keys(listed[key]) if key in listed else ())


def children_of(parent: Shard, listed: Iterable[Shard]) -> list[Shard]:
    """The listed children of a shard."""
    return [child for child in listed if child.stream == parent.stream and parent.shard_id in child.parents]
