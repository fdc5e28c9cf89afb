"""Helpers for sinks that write from a queue of their own: which positions may be stored, and which records may still be written."""

from collections import deque
from collections.abc import Callable, Collection

from recordpublisher.fetcher.sink import State, UnfinishedShard
from recordpublisher.publishers.records import RecordBatch, to_millis

MOST_WAITING = 16
"""Most states that wait for their records.

A further state replaces the last one, so that states use little memory even in a long outage.
"""
PARTIAL_FLUSH_SECONDS = 1.0
"""How long a partial flush waits (seconds). Most records are written sooner. A longer wait would delay writes and moves of shards."""
PERMISSION_SECONDS = 0.1
"""Pause between two checks whether the job may write (seconds)."""


class UnfinishedWrites:
    """Keeps the unfinished writes of a job in order, and counts their records by shard for `Unfinished.shards`.

    - `left_of`: returns how many records of a write are not finished. It gets the flush epoch of the write, a number that no other write
      has.
    """

    def __init__(self, left_of: Callable[[int], int]) -> None:
        self._left_of = left_of
        self._writes: deque[tuple[int, str, int]] = deque()

    def add(self, epoch: int, batch: RecordBatch) -> None:
        """Remember a write. Forget the finished writes at the front, so that the queue stays short even if `by_shard` is never called."""
        while self._writes and not self._left_of(self._writes[0][0]):
            self._writes.popleft()
        if len(batch):
            self._writes.append((epoch, batch.shard.key, to_millis(batch.records[0].arrival)))

    def by_shard(self) -> dict[str, UnfinishedShard]:
        """Forget all finished writes, and return the unfinished records of each shard that has any."""
        found: dict[str, UnfinishedShard] = {}
        kept = [(left, write) for write in self._writes if (left := self._left_of(write[0]))]
        self._writes = deque(write for _, write in kept)
        for left, (_, shard, oldest_ms) in kept:
            # The writes of a shard are in order, so the first one is the oldest.
            before = found.get(shard, UnfinishedShard(0, oldest_ms))
            found[shard] = UnfinishedShard(before.records + left, before.oldest_ms)
        return found


class WrittenStates:
    """Keeps the state of each checkpoint, with its flush epoch, until all of its records are written. Only then the state may be stored.

    - `is_complete`: returns whether all records up to the end of an epoch are written.
    """

    def __init__(self, is_complete: Callable[[int], bool]) -> None:
        self._is_complete = is_complete
        self._waiting: deque[tuple[int, State]] = deque()
        self._written: State | None = None

    def add(self, epoch: int, state: State) -> None:
        """Remember a state. It may be stored when this epoch is complete."""
        if len(self._waiting) == MOST_WAITING:
            self._waiting.pop()
        self._waiting.append((epoch, state))

    def newest(self) -> State:
        """Return the newest state that may be stored.

        If there is none yet, return a state without shards. A restart from that state reads each shard again from where its read began.
        """
        while self._waiting and self._is_complete(self._waiting[0][0]):
            self._written = self._waiting.popleft()[1]
        return {**self._waiting[-1][1], "shards": {}} if self._written is None else self._written

    def revoke(self, shards: Collection[str]) -> None:
        """Forget these shards. Another process writes their queued records, and a shard that comes back begins at another position."""
        self._waiting = deque([(epoch, _without(shards, state)) for epoch, state in self._waiting])
        if self._written is not None:
            self._written = _without(shards, self._written)


class SourceShard:
    """A shard that a job reads records from.

    When it is revoked, another process reads the shard, and writes the records that were not sent here.
    """

    __slots__ = ("is_revoked",)

    def __init__(self) -> None:
        self.is_revoked = False


def _without(shards: Collection[str], state: State) -> State:
    return {**state, "shards": {key: entry for key, entry in state["shards"].items() if key not in shards}}
