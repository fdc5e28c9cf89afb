"""Parents, ancestors and children of shards."""

from collections.abc import Callable, Iterable, Mapping

from recordpublisher.publishers.shards import Shard


def parent_keys(shard: Shard) -> list[str]:
    """`Shard.key` of each parent: one after a split, two after a merge."""
    return [f"{shard.stream}/{parent}" for parent in shard.parents]


def parents_ended(parents: Iterable[str], is_ended: Callable[[str], bool]) -> bool:
    """Whether a shard with these parents (`Shard.key`) may start: the last record of each was emitted, after a merge of both (S2).
    What follows for the ancestors of one that did: `finished_ancestors`.

    `is_ended` says it of one parent. What an unknown parent means differs, so each caller decides that:

    - A subtask (`ShardTable`): it may belong to another subtask, or not be listed yet; it has not ended before somebody has said so.
    - A group (`LeaseTable`): it may be listed later, so it has not ended.
    - A restored job (`initial_states.py`) and an offset of Spark (`source/reshards.py`): it was read before, or is past retention.
    """
    return all(map(is_ended, parents))


def finished_ancestors(begun: Iterable[Shard], listed: Mapping[str, Shard]) -> set[str]:
    """`Shard.key` of every ancestor of shards that have begun: read to its end, or `parents_ended` had not let them begin (S2).

    The parents of a shard that is not `listed` are unknown. What a caller knows of an ancestor itself goes before this.
    """
    parents = (parent for shard in begun for parent in parent_keys(shard))
    return reachable(parents, lambda key: parent_keys(listed[key]) if key in listed else ())


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


class Children:
    """The children among known shards, by their parents: nobody looks through all shards for them."""

    def __init__(self, shards: Iterable[Shard] = ()) -> None:
        self._by_parent: dict[str, dict[str, Shard]] = {}
        for shard in shards:
            self.add(shard)

    def add(self, shard: Shard) -> None:
        """This shard is known from now on."""
        for parent in parent_keys(shard):
            self._by_parent.setdefault(parent, {})[shard.key] = shard

    def remove(self, shard: Shard) -> None:
        """This shard is forgotten."""
        for parent in parent_keys(shard):
            siblings = self._by_parent.get(parent, {})
            siblings.pop(shard.key, None)
            if not siblings:
                self._by_parent.pop(parent, None)

    def of(self, parent: str) -> list[Shard]:
        """The known children of a parent (`Shard.key`)."""
        return list(self._by_parent.get(parent, {}).values())
