"""Decides which of the unhandled records of a `MapSink` may be handled now, so that records of one key stay in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Literal

import msgspec

from recordpublisher.fetcher.shards.lineage import reachable
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import Record, RecordBatch, to_millis
from recordpublisher.publishers.shards import Shard

if TYPE_CHECKING:
    from .handled_positions import ShardProgress

RECORD_OBJECT_BYTES = 330
"""Memory of a `Record`, its `UnhandledRecord` and its `KeyQueue`, in addition to the batch; measured with a key for each record."""


RETRY_SECONDS = 5.0
"""How long failed records of a released shard are handled again (seconds). Then they are left to the shard's next reader.

The time is shorter if the job waits for the sink for less than twice this time (`flink.job.drain.timeout`).
"""


class ReadyRecords:
    """Decides which of the waiting records a handler may take.

    `queue` has the records that may be taken now. All other records wait in the `KeyQueue` of their key.
    """

    def __init__(self, ordering: Ordering) -> None:
        self.queue: deque[UnhandledRecord] = deque()
        self._ordering = ordering
        self._key_queues: dict[str, dict[str, KeyQueue]] = {}
        """The queues by stream and key."""
        self._lineage = ShardLineage()

    def add(self, batch: UnhandledBatch) -> None:
        """Add the records of a batch, in order."""
        records, ready = batch.records, self.queue
        if self._ordering is Ordering.NONE:
            ready.extend([UnhandledRecord(record, index, batch) for index, record in enumerate(records)])
            return
        queues = self._key_queues.setdefault(records.stream, {})
        is_per_key, key = self._ordering is Ordering.PER_KEY, records.shard_id
        if not is_per_key and key not in queues:
            self._wait_for_ancestors(records.shard, queues)
        for index, record in enumerate(records):
            if is_per_key:
                if record.partition_key is None:  # AUTO record distribution: a record without a key has no order
                    ready.append(UnhandledRecord(record, index, batch))
                    continue
                key = record.partition_key
            queue = queues.get(key)
            if queue is None:
                queues[key] = queue = KeyQueue(key, queues)
                ready.append(UnhandledRecord(record, index, batch, queue))
            elif queue.waiting is None:
                # Most keys have one record at a time, so the deque is only made for the second record.
                queue.waiting = deque((UnhandledRecord(record, index, batch, queue),))
            else:
                queue.waiting.append(UnhandledRecord(record, index, batch, queue))

    def has(self, count: int) -> bool:
        """Return whether `take` would return `count` records."""
        found = len(self.queue)
        if found >= count:
            return True
        for item in self.queue:
            if item.key_queue is not None and item.key_queue.waiting:
                found += len(item.key_queue.waiting)
                if found >= count:
                    return True
        return False

    def take(self, count: int) -> list[UnhandledRecord]:
        """Take up to `count` records that may be handled together. The records of one key are in order."""
        taken: list[UnhandledRecord] = []
        while self.queue and len(taken) < count:
            item = self.queue.popleft()
            taken.append(item)
            waiting = None if item.key_queue is None else item.key_queue.waiting
            while waiting and len(taken) < count:
                taken.append(waiting.popleft())
        return taken

    def put_back(self, items: Sequence[UnhandledRecord]) -> None:
        """Make taken records ready again: records of one key, or one record without a key."""
        first, others = items[0], items[1:]
        self.queue.append(first)
        if others and first.key_queue is not None:
            # The other records were taken before those that wait, so they go in front of them.
            first.key_queue.waiting = deque((*others, *(first.key_queue.waiting or ())))

    def finish(self, key_queue: KeyQueue | None) -> None:
        """Make the next record of a key ready, because the records taken from its queue are finished. Without a queue do nothing."""
        if key_queue is None:
            return
        if key_queue.waiting:
            self.queue.append(key_queue.waiting.popleft())
            return
        del key_queue.queues[key_queue.key]
        for child in key_queue.children or ():
            child.unfinished_parents -= 1
            if not child.unfinished_parents:
                self.finish(child)

    def remove_dropped(self) -> list[UnhandledRecord]:
        """Remove and return the waiting records that were dropped (left to the next readers of their shards)."""
        dropped: list[UnhandledRecord] = []
        for queues in self._key_queues.values():
            for key_queue in queues.values():
                if key_queue.waiting:
                    dropped += [item for item in key_queue.waiting if item.is_dropped]
                    key_queue.waiting = deque([item for item in key_queue.waiting if not item.is_dropped])
        ready = list(self.queue)
        self.queue.clear()
        self.queue.extend([item for item in ready if not item.is_dropped])
        for item in ready:
            if item.is_dropped:
                dropped.append(item)
                # Finished like a handled record, because records with this key in other shards, and the key queues of child shards, may
                # wait for it.
                self.finish(item.key_queue)
        return dropped

    def learn_parents(self, state: State) -> None:
        """Learn the parents of each shard from the state of a checkpoint."""
        if self._ordering is Ordering.PER_SHARD:
            self._lineage.learn(state)

    def clear(self) -> None:
        """Remove every record.

        Without this call the records would stay in memory, because they refer to each other and are excluded from garbage collection.
        """
        self.queue.clear()
        for queues in self._key_queues.values():
            for key_queue in queues.values():
                key_queue.waiting = key_queue.children = None
            queues.clear()

    def _wait_for_ancestors(self, shard: Shard, queues: dict[str, KeyQueue]) -> None:
        """Make the queue of a shard wait for its unhandled ancestors, if it has any."""
        parents = [queues[shard_id] for shard_id in sorted(self._lineage.unhandled_before(shard, queues.keys()))]
        if parents:
            child = queues[shard.shard_id] = KeyQueue(shard.shard_id, queues, deque(), len(parents))
            for parent in parents:
                parent.children = [*(parent.children or ()), child]


class UnhandledRecord(msgspec.Struct, gc=False, eq=False):
    """A record that was written to the sink and is not handled yet. Variables of this type are named `item`.

    - `index`: the index of the record in `batch`.
    - `key_queue`: the queue of the record's key, or None if no other record has to wait for this one.
    - `attempts`: number of failed calls of the handler.
    - `failing_since`: time of the first failed call (seconds of the clock).
    - `told`: the error of the first failed call, if it was logged with its traceback.
    """

    record: Record
    index: int
    batch: UnhandledBatch
    key_queue: KeyQueue | None = None
    attempts: int = 0
    failing_since: float = 0.0
    told: str = ""

    @property
    def is_dropped(self) -> bool:
        """Whether the next reader of the shard handles the record: another process, or the next start of the job."""
        return self.batch.progress.is_revoked or self.index >= self.batch.limit

    def as_batch(self) -> RecordBatch:
        """Return the record as a batch of one."""
        return self.batch.records.slice(self.index, self.index + 1)

    def __str__(self) -> str:
        record = self.record
        return f"record {SequenceNumber(record.sequence_number, record.sub_sequence_number)} of {record.stream}/{record.shard_id}"


class UnhandledBatch:
    """A batch that has unhandled records. The batch counts as held memory until all of its records are finished.

    - `remaining`: number of records that are neither handled nor dropped.
    - `begun`: number of records up to the last one that a handler has begun.
    - `limit`: the records from this index on are dropped.
    """

    __slots__ = ("_unhandled", "begun", "held_bytes", "limit", "progress", "records", "remaining")

    def __init__(self, records: RecordBatch, progress: ShardProgress) -> None:
        self.records = records
        self.progress = progress
        self.remaining = self.limit = len(records)
        self.begun = 0
        self.held_bytes = records.held_bytes + RECORD_OBJECT_BYTES * len(records)
        self._unhandled = bytearray(b"\1") * len(records)
        progress.batches.append(self)

    def begin(self, index: int) -> None:
        """Remember that a handler has begun the record at `index`."""
        if index >= self.begun:
            self.begun = index + 1

    def finish(self, index: int) -> None:
        """Count the record at `index` as handled or dropped."""
        if index < self.limit:
            self._unhandled[index] = 0
        self.remaining -= 1

    def drop_from(self, index: int) -> int:
        """Drop the records from `index` on. Return how many of them were handled: the next reader handles them again, in order."""
        handled = self._unhandled.count(0, index)
        self.limit = min(self.limit, index)
        self._unhandled[index:] = b"\1" * (len(self._unhandled) - index)
        return handled

    def oldest_unhandled_ms(self) -> int:
        """Return when the first record that is not handled arrived (epoch ms)."""
        return to_millis(self.records.records[min(self.handled_count(), len(self._unhandled) - 1)].arrival)

    def handled_count(self) -> int:
        """Return the number of records before the first one that is not handled."""
        count = self._unhandled.find(1)
        return len(self._unhandled) if count < 0 else count


class Ordering(Enum):
    """Which records are handled one after the other.

    - NONE: no records; all may be handled at the same time.
    - PER_KEY: the records of a stream that have the same partition key, including across a reshard.
    - PER_SHARD: the records of a shard, which also follow the records of its parent shards.
    """

    NONE = "NONE"
    PER_KEY = "PER_KEY"
    PER_SHARD = "PER_SHARD"


OrderingName = Literal["NONE", "PER_KEY", "PER_SHARD"]
"""The names of `Ordering`, as an argument takes them."""


class KeyQueue(msgspec.Struct, gc=False, eq=False):
    """The records of one key (PER_KEY) or shard (PER_SHARD), of which one may be handled at a time. It exists while it has records.

    - `queues`: the queues of the stream by key, in which this queue has the key `key`.
    - `waiting`: the records after the one that may be taken; None if none has waited yet.
    - `unfinished_parents`: number of queues that must end before a record may be taken. Until then `waiting` has all records.
    - `children`: the queues that wait for the end of this one.
    """

    key: str
    queues: dict[str, KeyQueue]
    waiting: deque[UnhandledRecord] | None = None
    unfinished_parents: int = 0
    children: list[KeyQueue] | None = None


class ShardLineage:
    """Finds the shards that the first record of a shard must wait for (PER_SHARD).

    A shard without records is never written to the sink. The parents of such a shard are known only from the states of checkpoints, and
    a shard that was opened and ended between two checkpoints is not known at all.
    """

    def __init__(self) -> None:
        self._parents: dict[str, tuple[str, ...]] = {}
        self._in_checkpoint: Collection[str] = ()
        self._begun: set[str] = set()

    def learn(self, state: State) -> None:
        """Replace the known shards by those of a checkpoint. A shard that the checkpoint no longer has was handled to its end."""
        self._in_checkpoint = state["shards"].keys()
        self._parents = {key: tuple(entry.get("parents", ())) for key, entry in state["shards"].items()}

    def unhandled_before(self, shard: Shard, unhandled: Collection[str]) -> set[str]:
        """Return the ids of the shards in `unhandled` that `shard` must wait for at its first record.

        These are its nearest unhandled ancestors. If the shard came after the last checkpoint and has an unknown ancestor, it waits for all
        unhandled shards of its stream.
        """
        if shard.key in self._begun:
            return set()
        self._begun.add(shard.key)
        nearest: set[str] = set()
        unknown: list[str] = []

        def parents(shard_id: str) -> Collection[str]:
            key = f"{shard.stream}/{shard_id}"
            if shard_id in unhandled:
                nearest.add(shard_id)
            elif key in self._parents:
                return self._parents[key]
            elif shard.key not in self._in_checkpoint and key not in self._begun:
                # The parents of this unknown shard may be unhandled, and it is not known which shards they are.
                unknown.append(key)
            return ()

        reachable(shard.parents, parents)
        return set(unhandled) if unknown else nearest
