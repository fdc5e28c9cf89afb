"""Finds parents, ancestors and children of shards: a child may be read when its parents have ended (`parents_ended`)."""

from collections.abc import Callable, Iterable, Mapping

from recordpublisher.publishers.shards import Shard, is_ancestor


def parent_keys(shard: Shard) -> list[str]:
    """Return `Shard.key` of each parent: one after a split, two after a merge."""
    return [f"{shard.stream}/{parent}" for parent in shard.parents]


def parents_ended(parents: Iterable[str], is_ended: Callable[[str], bool]) -> bool:
    """Return whether a shard with these parents (`Shard.key`) may start.

    A shard may start when the last record of each parent was emitted, so all ancestors of a started shard were read to their ends
    (`finished_ancestors`).

    `is_ended`: returns whether one parent has ended. For an unknown parent the caller decides:

    - A worker (`ShardTable`): the parent may belong to another worker, or not be listed yet. It has not ended before a worker says so.
    - A group (`LeaseTable`): the parent may be listed later, so it has not ended.
    - A restored job (`initial_states`) and an offset of Spark (`source/batch_plan.py`): the parent was read before, or is past retention.
    """
    return all(map(is_ended, parents))


def finished_ancestors(begun: Iterable[Shard], listed: Mapping[str, Shard]) -> set[str]:
    """Return `Shard.key` of every ancestor of `begun`, the shards that were read before.

    These ancestors were read to their ends, because a shard waits for its parents.

    - `listed`: the known shards, which name their parents. Older ancestors are found by number and hash range among the shards that are
      read from an archive (`Shard.is_unlisted`).
    """

    def parents_of(key: str) -> Iterable[str]:
        return parent_keys(listed[key]) if key in listed else ()

    begun = [*begun]
    known = reachable([parent for shard in begun for parent in parent_keys(shard)], parents_of)
    archived = [shard for shard in listed.values() if shard.is_unlisted and shard.key not in known]
    return known | reachable(
        [old.key for old in archived if any(is_ancestor(old, shard) for shard in begun)], parents_of
    )


def reachable(start: Iterable[str], following: Callable[[str], Iterable[str]]) -> set[str]:
    """Return the keys in `start`, and every key that can be reached from them by repeated calls of `following`.

    Each key is visited once. There is no recursion.
    """
    visited: set[str] = set()
    to_visit = [*start]
    while to_visit:
        key = to_visit.pop()
        if key not in visited:
            visited.add(key)
            to_visit += following(key)
    return visited


class Children:
    """Keeps shards, and finds the children of a given shard."""

    def __init__(self, shards: Iterable[Shard] = ()) -> None:
        self._by_parent: dict[str, dict[str, Shard]] = {}
        for shard in shards:
            self.add(shard)

    def add(self, shard: Shard) -> None:
        """Add a shard that is known from now on."""
        for parent in parent_keys(shard):
            self._by_parent.setdefault(parent, {})[shard.key] = shard

    def remove(self, shard: Shard) -> None:
        """Forget a shard."""
        for parent in parent_keys(shard):
            siblings = self._by_parent.get(parent, {})
            siblings.pop(shard.key, None)
            if not siblings:
                self._by_parent.pop(parent, None)

    def of(self, parent: str) -> list[Shard]:
        """Return the known children of a parent (`Shard.key`)."""
        return list(self._by_parent.get(parent, {}).values())
