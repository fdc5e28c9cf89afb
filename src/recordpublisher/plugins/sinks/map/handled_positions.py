"""HandledPositions: how far each shard is handled without a gap, as the state that a checkpoint may store."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from recordpublisher.fetcher.sink import State

from .pending_record import PendingBatch


class ShardProgress:
    """One shard: its batches that are not handled, in order; the states behind some of them; the newest state that is handled."""

    __slots__ = ("batches", "handled", "is_revoked", "states")

    def __init__(self) -> None:
        self.batches: deque[PendingBatch] = deque()
        self.states: deque[tuple[PendingBatch, Mapping[str, Any]]] = deque()
        """States of earlier checkpoints, each with the last batch that must be handled before it may be stored."""
        self.handled: Mapping[str, Any] | None = None
        self.is_revoked = False
        """Another process reads the shard: what is not handled here is handled there."""

    def drop_handled(self) -> None:
        """Forget the batches that are handled up to the first one that is not; take over the states that they held back."""
        while self.batches and not self.batches[0].remaining:
            done = self.batches.popleft()
            if self.states and self.states[0][0] is done:
                self.handled = self.states.popleft()[1]

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        """Remember the shard's state: it may be stored when what was written so far is handled."""
        if not self.batches:
            self.handled = state
        elif self.states and self.states[-1][0] is self.batches[-1]:
            self.states[-1] = (self.batches[-1], state)
        else:
            self.states.append((self.batches[-1], state))


class HandledPositions:
    """Owns the progress of every shard by its key."""

    def __init__(self) -> None:
        self._shards: dict[str, ShardProgress] = {}

    def shard(self, key: str) -> ShardProgress:
        """The progress of a shard that is read here."""
        shard = self._shards.get(key)
        if shard is None:
            shard = self._shards[key] = ShardProgress()
        return shard

    def revoke(self, keys: Collection[str]) -> None:
        """These shards are read here no more. One that comes back begins anew."""
        for key in self._shards.keys() & keys:
            self._shards.pop(key).is_revoked = True

    def has_unhandled(self, keys: Collection[str]) -> bool:
        """Whether records of these shards are not handled."""
        return any(self._shards[key].batches for key in self._shards.keys() & keys)

    def handled_state(self, state: State) -> State:
        """`state`, or for each shard that is not handled so far its newest state that is.

        A shard of which no state is handled is left out: it is new and will be read from its beginning. A shard keeps its older state
        also while a parent is not handled to its end, so that after a restart its records follow those of the parent again.
        """
        current: Mapping[str, Mapping[str, Any]] = state["shards"]
        for key in [key for key, shard in self._shards.items() if key not in current and not shard.batches]:
            del self._shards[key]
        unfinished = {key for key, shard in self._shards.items() if shard.batches}
        waiting = _descendants(unfinished, current)
        for key, entry in current.items():
            if key not in waiting:
                self._shards.setdefault(key, ShardProgress()).checkpoint(entry)
        handled = {
            key: self._shards[key].handled for key in (*current, *(unfinished - current.keys())) if key in self._shards
        }
        return {**state, "shards": {key: entry for key, entry in handled.items() if entry is not None}}


def _descendants(keys: set[str], shards: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The shards of which an ancestor is among `keys`."""
    found: set[str] = set()
    while added := {
        key
        for key, entry in shards.items()
        if key not in found
        and any(f"{key.rpartition('/')[0]}/{parent}" in keys | found for parent in entry.get("parents", ()))
    }:
        found |= added
    return found
