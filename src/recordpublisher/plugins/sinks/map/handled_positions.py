"""The positions that a `MapSink` may store: how far each shard is handled without a gap."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from recordpublisher.fetcher.shards.lineage import reachable
from recordpublisher.fetcher.sink import State, UnfinishedShard
from recordpublisher.publishers.log_fields import log_extra
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import Record, RecordBatch, to_millis
from recordpublisher.publishers.safe_text import counted

from .key_order import RETRY_SECONDS, UnhandledBatch, UnhandledRecord

log = logging.getLogger("recordpublisher.plugins.sinks.map")

_PROGRESS_FIELDS = frozenset(
    (
        "position",
        "subSequenceNumber",
        "continuation",
        "watermark",
        "ended",
        "arrivalMs",
        "tipMs",
        "seenMs",
        "waitingForParents",
    )
)
"""The fields of a shard's state that say how far the shard was read. The other fields identify the shard."""


class HandledPositions:
    """Knows the position of each shard that a checkpoint may store: the position before the first unhandled record.

    A shard goes to its next reader in one of two ways:

    - It is *released* when the job stops or the group moves the shard. Records that a handler has begun are still handled here. The
      later records are *dropped*: they are not handled here, and the position stays before them.
    - It is *revoked* when another process reads it already. All of its records are dropped, and its position is forgotten.
    """

    def __init__(self) -> None:
        self._shards: dict[str, ShardProgress] = {}
        self._entries_at_release: Mapping[str, Mapping[str, Any]] = {}
        """The states of shards at the last `release`. They name the parents of each shard."""
        self._retry_seconds = RETRY_SECONDS

    def open(self, drain_seconds: float) -> None:
        """Set for how long a stop waits for the sink (seconds), of which failed records are handled again for at most half."""
        # At the end of that time the job cancels the calls that run, and would cancel those of failed records with all others.
        self._retry_seconds = min(RETRY_SECONDS, drain_seconds / 2)

    def progress(self, key: str) -> ShardProgress:
        """Return the progress of a shard that is read here."""
        progress = self._shards.get(key)
        if progress is None:
            progress = self._shards[key] = ShardProgress()
        return progress

    def handled_state(self, state: State) -> State:
        """Return `state` with the position of each shard moved back to before its first unhandled record.

        - A shard without a handled record is left out: it is new, and its next reader begins at its start.
        - A shard keeps its older state while one of its ancestors has unhandled records, so that a restart handles its records after those
          of the ancestor.
        """
        current: Mapping[str, Mapping[str, Any]] = state["shards"]
        for key in [key for key, shard in self._shards.items() if key not in current and not shard.batches]:
            del self._shards[key]
        unfinished = {key for key, shard in self._shards.items() if shard.batches or shard.has_dropped}
        held_back = _descendants(unfinished, current)
        for key, entry in current.items():
            if key not in held_back:
                self._shards.setdefault(key, ShardProgress()).add_state(entry)
        handled = {
            key: self._shards[key].storable if key in held_back else self._shards[key].handled_state()
            for key in (*current, *(unfinished - current.keys()))
            if key in self._shards
        }
        return {**state, "shards": {key: entry for key, entry in handled.items() if entry is not None}}

    def unhandled(self) -> dict[str, UnfinishedShard]:
        """Return how many records are unhandled in each shard that has such records, including those left to its next reader."""
        return {
            key: shard.unhandled() for key, shard in self._shards.items() if shard.batches or shard.left is not None
        }

    def has_unhandled(self, keys: Collection[str]) -> bool:
        """Return whether any of these shards has unhandled records."""
        return any(self._shards[key].batches for key in self._shards.keys() & keys)

    def has_dropped_the_rest(self, key: str) -> bool:
        """Return whether records of the shard were dropped here, and all records before them are handled."""
        shard = self._shards.get(key)
        return shard is not None and shard.has_dropped and not shard.batches

    def release(self, keys: Collection[str], state: State, now: float) -> bool:
        """Release shards to their next readers: drop the records that no handler has begun. Return whether any record was dropped.

        - `state`: the state of the checkpoint, which names the parents of each shard.
        - `now`: time of the monotonic clock (seconds). It becomes the release time of each shard that was not released before.
        """
        self._entries_at_release = state["shards"]
        for key in self._shards.keys() & keys:
            if self._shards[key].released_at is None:
                self._shards[key].released_at = now
        # If a handler has begun records of a descendant, the shard is handled to its end, because the descendant's state can be stored
        # only after that.
        begun = [key for key, shard in self._shards.items() if shard.has_begun]
        may_drop = (self._shards.keys() & keys) - _ancestors(begun, state["shards"])
        dropped = [key for key in may_drop if self._shards[key].drop_unbegun()]
        return bool(dropped)

    def drop_failed(self, item: UnhandledRecord, now: float) -> bool:
        """Leave a failed record to the next reader, if its shard was released long enough ago (`RETRY_SECONDS`). Return whether it did.

        All records after it, including those of the shard's descendants, are also left to the next reader. If `now` is infinite, the time
        of the release does not matter.
        """
        key, shard = item.batch.records.shard.key, item.batch.progress
        if shard.released_at is None or now - shard.released_at < self._retry_seconds:
            return False
        behind = [self._shards[each] for each in _descendants({key}, self._entries_at_release) & self._shards.keys()]
        if any(each.released_at is None for each in behind):
            return False  # A descendant is still read here, so its records cannot be left to another reader.
        handled = shard.drop_from(item.batch, item.index) + sum(each.drop_all() for each in behind)
        # Older records of the shard may be left later. Each line is then true until the next one, so only the first is a warning.
        level = logging.INFO if shard.has_left_failed else logging.WARNING
        shard.has_left_failed = True
        log.log(
            level,
            "record %s of %s still fails after this process has released the shard: the shard's next reader begins at that record, or at "
            "an older one that is left too, and handles again %s that came after it and were handled here",
            item.record.sequence_number,
            key,
            counted(handled, "record"),
            extra=log_extra(key, item.record.sequence_number),
        )
        return True

    def seconds_until_dropped(self, item: UnhandledRecord, now: float) -> float:
        """Return for how many more seconds a failed record of a released shard is retried; 0 if its shard was not released."""
        released_at = item.batch.progress.released_at
        return 0.0 if released_at is None else released_at + self._retry_seconds - now

    def revoke(self, keys: Collection[str]) -> None:
        """Drop all records of these shards, because another process reads the shards, and forget their positions."""
        for key in self._shards.keys() & keys:
            self._shards.pop(key).is_revoked = True


class ShardProgress:
    """How far one shard is handled without a gap, and its batches that have unhandled records (`batches`, in order)."""

    __slots__ = (
        "_latest",
        "_progress_in_batch",
        "_waiting_states",
        "batches",
        "has_dropped",
        "has_handled",
        "has_left_failed",
        "is_revoked",
        "left",
        "released_at",
        "storable",
    )

    def __init__(self) -> None:
        self.batches: deque[UnhandledBatch] = deque()
        self.storable: Mapping[str, Any] | None = None
        """The newest state of a checkpoint that may be stored; None for the start of the shard."""
        self._waiting_states: deque[tuple[UnhandledBatch, Mapping[str, Any]]] = deque()
        """States of earlier checkpoints, each with the last batch that must be handled before the state may be stored."""
        self._progress_in_batch: dict[str, Any] = {}
        """Progress at the end of the last handled batch, if that batch is after the state `storable`."""
        self._latest: Mapping[str, Any] | None = None
        """The state of the last checkpoint."""
        self.released_at: float | None = None
        """When the shard was released (seconds of the monotonic clock)."""
        self.has_handled = False
        """Whether a batch was handled."""
        self.has_dropped = False
        """Whether records were dropped. From then on no newer state may be stored."""
        self.has_left_failed = False
        """Whether a failed record was left to the shard's next reader."""
        self.is_revoked = False
        """Whether another process reads the shard."""
        self.left: UnfinishedShard | None = None
        """The records that were dropped here. They are not handled until the next reader handles them. None if there are none."""

    def unhandled(self) -> UnfinishedShard:
        """Return how many records are not handled, and when the oldest arrived. Call this only if there are such records."""
        oldest_ms = [self.batches[0].oldest_unhandled_ms()] if self.batches else []
        left = () if self.left is None else (self.left,)
        records = sum(batch.remaining for batch in self.batches) + sum(each.records for each in left)
        return UnfinishedShard(records, min(oldest_ms + [each.oldest_ms for each in left]))

    def leave(self, record: Record) -> None:
        """Count a dropped record as left to the next reader of the shard."""
        before = self.left or UnfinishedShard(0, record.arrival_millis)
        self.left = UnfinishedShard(before.records + 1, min(before.oldest_ms, record.arrival_millis))

    @property
    def has_begun(self) -> bool:
        """Whether a handler has begun a record of the shard."""
        return self.has_handled or any(batch.begun for batch in self.batches)

    def add_state(self, state: Mapping[str, Any]) -> None:
        """Remember the state of a checkpoint. It may be stored when the batches written so far are handled."""
        self._latest = state
        if self.has_dropped:
            return  # The state covers dropped records, so it may never be stored.
        if not self.batches:
            self.storable, self._progress_in_batch = state, {}
        elif self._waiting_states and self._waiting_states[-1][0] is self.batches[-1]:
            # Nothing was written since the last checkpoint, so this newer state replaces the last one, which waits for the same batch.
            self._waiting_states[-1] = (self.batches[-1], state)
        else:
            self._waiting_states.append((self.batches[-1], state))

    def advance(self) -> None:
        """Remove the finished batches at the front. The newest state that waited for one of them may then be stored."""
        while self.batches and not self.batches[0].remaining:
            done = self.batches.popleft()
            if count := done.handled_count():
                self.has_handled, self._progress_in_batch = True, _progress_after(done.records, count)
            if self._waiting_states and self._waiting_states[0][0] is done:
                state = self._waiting_states.popleft()[1]
                # If records of the batch were dropped, the state is after them and may not be stored.
                if count == len(done.records):
                    self.storable, self._progress_in_batch = state, {}

    def handled_state(self) -> Mapping[str, Any] | None:
        """Return the state before the first unhandled record, or None for the start of the shard."""
        progress = self._progress_in_batch
        if self.batches and (count := self.batches[0].handled_count()):
            progress = _progress_after(self.batches[0].records, count)
        if not progress or self._latest is None:
            return self.storable
        # The fields that identify the shard come from the latest state, and the progress from the handled batch.
        return {name: value for name, value in self._latest.items() if name not in _PROGRESS_FIELDS} | progress

    def drop_unbegun(self) -> bool:
        """Drop the records after the last one that a handler has begun. Return whether any was dropped.

        The next reader continues after that last record. All records before it are handled here, so none is handled twice.
        """
        if self.has_dropped or not self.batches or self.batches[-1].begun == len(self.batches[-1].records):
            return False
        self.has_dropped = True
        for batch in reversed(self.batches):
            batch.limit = batch.begun
            if batch.begun:
                break
        return True

    def drop_from(self, first: UnhandledBatch, index: int) -> int:
        """Drop the record at `index` of the batch `first`, and all records after it. Return how many of them were handled."""
        self.has_dropped = True
        batches = list(self.batches)
        of_first, *later = batches[batches.index(first) :]
        return of_first.drop_from(index) + sum(batch.drop_from(0) for batch in later)

    def drop_all(self) -> int:
        """Drop all records of the shard that are here. Return how many of them were handled."""
        self.has_dropped = True
        return sum(batch.drop_from(0) for batch in self.batches)


def _progress_after(records: RecordBatch, count: int) -> dict[str, Any]:
    """Return the progress of a shard after the first `count` records of a batch, or {} if the batch has no position."""
    position: SequenceNumber | None = records.position_after(count)
    if position is None:
        return {}
    progress = {"position": position.sequence, "arrivalMs": to_millis(records.records[count - 1].arrival)}
    if position.is_inside_aggregate:
        progress["subSequenceNumber"] = position.sub_sequence
    if records.watermarks:
        progress["watermark"] = records.watermarks[count - 1]
    return progress


def _ancestors(keys: Collection[str], shards: Mapping[str, Mapping[str, Any]]) -> set[str]:

    def parents(key: str) -> list[str]:
        return [f"{key.rpartition('/')[0]}/{parent}" for parent in shards.get(key, {}).get("parents", ())]

    return reachable((parent for key in keys for parent in parents(key)), parents)


def _descendants(keys: Collection[str], shards: Mapping[str, Mapping[str, Any]]) -> set[str]:
    children: dict[str, list[str]] = {}
    for key, entry in shards.items():
        for parent in entry.get("parents", ()):
            children.setdefault(f"{key.rpartition('/')[0]}/{parent}", []).append(key)
    nearest = (child for key in keys for child in children.get(key, ()))
    return reachable(nearest, lambda key: children.get(key, ()))
