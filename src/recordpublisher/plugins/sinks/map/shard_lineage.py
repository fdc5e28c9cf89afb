"""ShardLineage: for which shards the records of a new shard must wait (PER_SHARD)."""

from __future__ import annotations

from collections.abc import Collection

from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.shards import Shard


class ShardLineage:
    """Owns the parents of each shard that is known, and which shards have begun: these have no new parents later.

    A shard without records is never written. So its parents are known from the states of checkpoints only, and a shard that was opened
    and ended between two of them is not known at all.
    """

    def __init__(self) -> None:
        self._parents: dict[str, tuple[str, ...]] = {}
        self._in_checkpoint: Collection[str] = ()
        self._begun: set[str] = set()

    def learn(self, state: State) -> None:
        """The state of a checkpoint. Ancestors that it does not have were handled before everything that it has."""
        self._in_checkpoint = state["shards"].keys()
        self._parents = {key: tuple(entry.get("parents", ())) for key, entry in state["shards"].items()}

    def begin(self, shard: Shard, unhandled: Collection[str]) -> set[str]:
        """The shards among `unhandled`, by shard id, that a shard must wait for at its first record.

        They are its nearest unhandled ancestors; all of its stream, if it came since the last checkpoint and has an unknown ancestor.
        """
        if shard.key in self._begun:
            return set()
        self._begun.add(shard.key)
        found: set[str] = set()
        to_visit = list(shard.parents)
        while to_visit:
            parent = to_visit.pop()
            key = f"{shard.stream}/{parent}"
            if parent in unhandled:
                found.add(parent)
            elif key in self._parents:
                to_visit += self._parents[key]
            elif shard.key not in self._in_checkpoint and key not in self._begun:
                return set(unhandled)
        return found
