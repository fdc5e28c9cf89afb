"""HandledPositions: how far each shard is handled without a gap, as the state that a checkpoint may store."""

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from recordpublisher.fetcher.shards.lineage import reachable
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch, to_millis

from .unhandled_record import UnhandledBatch, UnhandledRecord

RETRY_SECONDS = 5.0
"""For how long after a shard was given up its failed records are handled again: a pause of up to 10 s that has begun may follow."""
_PROGRESS = frozenset(
    ("position", "subSequenceNumber", "continuation", "watermark", "ended", "arrivalMs", "tipMs", "waitingForParents")
)
"""What a shard's state says about how far it is; the rest says what shard it is."""


class ShardProgress:
    """One shard: its batches that are not handled, in order; the states behind some of them; how far it is handled without a gap."""

    __slots__ = (
        "batches",
        "given_up_at",
        "handled",
        "has_handled",
        "is_cut",
        "is_revoked",
        "known",
        "states",
        "within",
    )

    def __init__(self) -> None:
        self.batches: deque[UnhandledBatch] = deque()
        self.states: deque[tuple[UnhandledBatch, Mapping[str, Any]]] = deque()
        """States of earlier checkpoints, each with the last batch that must be handled before it may be stored."""
        self.handled: Mapping[str, Any] | None = None
        """The newest of them that may be stored."""
        self.within: dict[str, Any] = {}
        """The end of the last handled batch, where it lies behind `handled`."""
        self.known: Mapping[str, Any] | None = None
        """The newest state of all."""
        self.given_up_at: float | None = None
        """Seconds of the clock."""
        self.has_handled = False
        """A batch of records."""
        self.is_cut = False
        """The shard is given up, and records behind the last one that a handler had begun were dropped."""
        self.is_revoked = False
        """Another process reads the shard: what is not handled here is handled there."""

    @property
    def has_begun(self) -> bool:
        """Whether a handler has begun a record."""
        return self.has_handled or any(batch.begun for batch in self.batches)

    def give_up(self) -> bool:
        """Let what is behind the last record that a handler has begun be dropped. Returns whether there is anything.

        What is before it must be handled: the next reader goes on behind it, so that nothing is handled twice.
        """
        if self.is_cut or not self.batches or self.batches[-1].begun == len(self.batches[-1].batch):
            return False
        self.is_cut = True
        for batch in reversed(self.batches):
            batch.limit = batch.begun
            if batch.begun:
                break
        return True

    def leave(self, first: UnhandledBatch | None = None, index: int = 0) -> None:
        """Let this record and all behind it be dropped, also what is handled; without one all that is here."""
        self.is_cut = True
        behind = list(self.batches)
        for batch in behind if first is None else behind[behind.index(first) :]:
            batch.leave(index)
            index = 0

    def drop_handled(self) -> None:
        """Forget the batches that are handled up to the first one that is not; take over the states that they held back."""
        while self.batches and not self.batches[0].remaining:
            done = self.batches.popleft()
            if count := done.handled_count():
                self.has_handled, self.within = True, _progress_after(done.batch, count)
            if self.states and self.states[0][0] is done:
                state = self.states.popleft()[1]
                if count == len(done.batch):
                    self.handled, self.within = state, {}

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        """Remember the shard's state: it may be stored when what was written so far is handled."""
        self.known = state
        if self.is_cut:
            return
        if not self.batches:
            self.handled, self.within = state, {}
        elif self.states and self.states[-1][0] is self.batches[-1]:
            self.states[-1] = (self.batches[-1], state)
        else:
            self.states.append((self.batches[-1], state))

    def handled_state(self) -> Mapping[str, Any] | None:
        """The state up to the first record that is not handled; None: the shard's beginning."""
        within = self.within
        if self.batches and (count := self.batches[0].handled_count()):
            within = _progress_after(self.batches[0].batch, count)
        if not within or self.known is None:
            return self.handled
        return {name: value for name, value in self.known.items() if name not in _PROGRESS} | within


def _progress_after(batch: RecordBatch, count: int) -> dict[str, Any]:
    """What a shard's state says when the first `count` records of a batch are handled; {} where the batch has no position."""
    position: SequenceNumber | None = batch.position_after(count)
    if position is None:
        return {}
    progress = {"position": position.sequence, "arrivalMs": to_millis(batch.records[count - 1].arrival)}
    if position.is_inside_aggregate:
        progress["subSequenceNumber"] = position.sub_sequence
    if batch.watermarks:
        progress["watermark"] = batch.watermarks[count - 1]
    return progress


class HandledPositions:
    """Owns the progress of every shard by its key."""

    def __init__(self) -> None:
        self._shards: dict[str, ShardProgress] = {}
        self._listed: Mapping[str, Mapping[str, Any]] = {}
        """The shards of the last state in which one was given up."""

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

    def give_up(self, keys: Collection[str], state: State, now: float) -> bool:
        """These shards are given up, `now` or some time ago. Returns whether records of them are dropped (`UnhandledRecord.is_dropped`).

        A shard of which a descendant is begun is handled as a whole: until then the state of the descendant stays as it was.
        """
        self._listed = state["shards"]
        for key in self._shards.keys() & keys:
            if self._shards[key].given_up_at is None:
                self._shards[key].given_up_at = now
        begun = [key for key, shard in self._shards.items() if shard.has_begun]
        given_up = (self._shards.keys() & keys) - _ancestors(begun, state["shards"])
        cut = [key for key in given_up if self._shards[key].give_up()]
        return bool(cut)

    def leave(self, item: UnhandledRecord, now: float) -> bool:
        """Leave a record that failed to the next reader, with all behind it in its shard and in those that came from it, `RETRY_SECONDS`
        after they were given up. Returns whether it is left: not while one of these shards is read here on."""
        key, shard = item.pending.batch.shard.key, item.pending.shard
        if shard.given_up_at is None or now - shard.given_up_at < RETRY_SECONDS:
            return False
        behind = [self._shards[each] for each in _descendants({key}, self._listed) & self._shards.keys()]
        if any(each.given_up_at is None for each in behind):
            return False
        shard.leave(item.pending, item.index)
        for each in behind:
            each.leave()
        return True

    def has_given_up(self, key: str) -> bool:
        """Whether all that is left of a shard was dropped."""
        shard = self._shards.get(key)
        return shard is not None and shard.is_cut and not shard.batches

    def has_unhandled(self, keys: Collection[str]) -> bool:
        """Whether records of these shards are not handled."""
        return any(self._shards[key].batches for key in self._shards.keys() & keys)

    def handled_state(self, state: State) -> State:
        """`state`, or for each shard that is not handled so far its state at the first record that is not.

        A shard of which nothing is handled is left out: it is new and will be read from its beginning. A shard keeps its older state
        also while a parent is not handled to its end, so that after a restart its records follow those of the parent again.
        """
        current: Mapping[str, Mapping[str, Any]] = state["shards"]
        for key in [key for key, shard in self._shards.items() if key not in current and not shard.batches]:
            del self._shards[key]
        unfinished = {key for key, shard in self._shards.items() if shard.batches or shard.is_cut}
        waiting = _descendants(unfinished, current)
        for key, entry in current.items():
            if key not in waiting:
                self._shards.setdefault(key, ShardProgress()).checkpoint(entry)
        handled = {
            key: self._shards[key].handled if key in waiting else self._shards[key].handled_state()
            for key in (*current, *(unfinished - current.keys()))
            if key in self._shards
        }
        return {**state, "shards": {key: entry for key, entry in handled.items() if entry is not None}}


def _ancestors(keys: Collection[str], shards: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The ancestors of these shards."""

    def parents(key: str) -> list[str]:
        return [f"{key.rpartition('/')[0]}/{parent}" for parent in shards.get(key, {}).get("parents", ())]

    return reachable((parent for key in keys for parent in parents(key)), parents)


def _descendants(keys: Collection[str], shards: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The shards of which an ancestor is among `keys`."""
    children: dict[str, list[str]] = {}
    for key, entry in shards.items():
        for parent in entry.get("parents", ()):
            children.setdefault(f"{key.rpartition('/')[0]}/{parent}", []).append(key)
    nearest = (child for key in keys for child in children.get(key, ()))
    return reachable(nearest, lambda key: children.get(key, ()))
