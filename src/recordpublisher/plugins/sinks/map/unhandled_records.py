"""The records that were written to a `MapSink` and are not handled yet: which may be handled now, and which positions may be stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any, Literal

import msgspec

from recordpublisher.fetcher.shards.shard_table import reachable
from recordpublisher.fetcher.sink import State, UnfinishedShard
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import Record, RecordBatch, to_millis
from recordpublisher.publishers.shards import Shard

RECORD_OBJECT_BYTES = 330
"""Memory of a `Record`, its `UnhandledRecord` and its `KeyQueue`, in addition to the batch; measured with a key for each record."""
RETRY_SECONDS = 5.0
"""How long failed records of a released shard are handled again (seconds). A pause of up to 10 s that has begun may follow."""
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


class UnhandledRecord(msgspec.Struct, gc=False, eq=False):
    """A record that was written to the sink and is not handled yet. Variables of this type are named `item`.

    - `index`: the place of the record in `batch`.
    - `key_queue`: the queue of the record's key, or None if no other record has to wait for this one.
    - `attempts`: number of failed calls of the handler; `failing_since`: time of the first of them, seconds of the clock.
    - `told`: the error of the first call, if it was logged with its traceback.
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
    """A batch that has unhandled records. Its memory counts until all of its records are finished.

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

    def drop_from(self, index: int) -> None:
        """Drop the records from `index` on, including those that are handled: the next reader handles them again, in order."""
        self.limit = min(self.limit, index)
        self._unhandled[index:] = b"\1" * (len(self._unhandled) - index)

    def oldest_unhandled_ms(self) -> int:
        """Return when the first record that is not handled arrived (epoch ms)."""
        return to_millis(self.records.records[min(self.handled_count(), len(self._unhandled) - 1)].arrival)

    def handled_count(self) -> int:
        """Return the number of records before the first one that is not handled."""
        count = self._unhandled.find(1)
        return len(self._unhandled) if count < 0 else count


# --- Order: which records may be handled now ---


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

    - `queues`: the mapping of the stream that has this queue under `key`.
    - `waiting`: the records behind the one that may be taken; None before the first of them.
    - `unfinished_parents`: number of queues that must end before a record may be taken. Until then `waiting` has all records.
    - `children`: the queues that wait for the end of this one.
    """

    key: str
    queues: dict[str, KeyQueue]
    waiting: deque[UnhandledRecord] | None = None
    unfinished_parents: int = 0
    children: list[KeyQueue] | None = None


class ReadyRecords:
    """Decides which records may be taken. It owns every record that waits for a handler.

    `queue` has the records that may be taken now. The others wait in the `KeyQueue` of their key.
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
                # Most keys have one record at a time, so the deque is only made for the second.
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
        """Make records ready again that were taken: either records of one key, or one record without a key."""
        first, others = items[0], items[1:]
        self.queue.append(first)
        if others and first.key_queue is not None:
            # They were taken first, so they stay before the records that have waited in the meantime.
            first.key_queue.waiting = deque((*others, *(first.key_queue.waiting or ())))

    def finish(self, key_queue: KeyQueue | None) -> None:
        """Make the next record of this key ready, because the records that were taken of it are finished."""
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
        """Remove the waiting records that are dropped, and return them."""
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
                # The key may have records of other shards, or children, which wait for this record.
                self.finish(item.key_queue)
        return dropped

    def learn_parents(self, state: State) -> None:
        """Learn the parents of each shard from the state of a checkpoint."""
        if self._ordering is Ordering.PER_SHARD:
            self._lineage.learn(state)

    def clear(self) -> None:
        """Remove every record. Without this the records would stay in memory: they refer to each other, and have no garbage collection."""
        self.queue.clear()
        for queues in self._key_queues.values():
            for key_queue in queues.values():
                key_queue.waiting = key_queue.children = None
            queues.clear()

    def _wait_for_ancestors(self, shard: Shard, queues: dict[str, KeyQueue]) -> None:
        """Make the queue of a shard wait for its unhandled ancestors, if it has any."""
        parents = [queues[shard_id] for shard_id in sorted(self._lineage.begin(shard, queues.keys()))]
        if parents:
            child = queues[shard.shard_id] = KeyQueue(shard.shard_id, queues, deque(), len(parents))
            for parent in parents:
                parent.children = [*(parent.children or ()), child]


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
        """Take over the shards of a checkpoint. Ancestors that it lacks were handled before all shards that it has."""
        self._in_checkpoint = state["shards"].keys()
        self._parents = {key: tuple(entry.get("parents", ())) for key, entry in state["shards"].items()}

    def begin(self, shard: Shard, unhandled: Collection[str]) -> set[str]:
        """Return the ids of the shards in `unhandled` that `shard` must wait for at its first record.

        They are the nearest unhandled ancestors. If the shard came after the last checkpoint and has an unknown ancestor, they are all
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
                # Its own parents may be unhandled, and nothing says which shards they are.
                unknown.append(key)
            return ()

        reachable(shard.parents, parents)
        return set(unhandled) if unknown else nearest


# --- Positions: how far each shard is handled without a gap ---


class HandledPositions:
    """Knows the position of each shard that a checkpoint may store: the one before the first record that is not handled.

    A shard goes to its next reader in one of two ways:

    - It is *released* when the job stops or the group moves the shard. Records that a handler has begun are still handled here. The
      records behind them are *dropped*: they are not handled here, and the position stays before them.
    - It is *revoked* when another process reads it already. All of its records are dropped, and its position is forgotten.
    """

    def __init__(self) -> None:
        self._shards: dict[str, ShardProgress] = {}
        self._entries_at_release: Mapping[str, Mapping[str, Any]] = {}
        """The shards of the last state in which a shard was released, for their parents."""

    def progress(self, key: str) -> ShardProgress:
        """Return the progress of a shard that is read here."""
        progress = self._shards.get(key)
        if progress is None:
            progress = self._shards[key] = ShardProgress()
        return progress

    def handled_state(self, state: State) -> State:
        """Return `state` with the position of each shard moved back to before its first unhandled record.

        - A shard without a handled record is left out: it is new, and its next reader begins at its start.
        - A shard keeps its older state while one of its ancestors has unhandled records. After a restart its records then follow
          those of the ancestor again.
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
        """Return the unhandled records of each shard that has any, including those that are left to its next reader."""
        return {
            key: shard.unhandled() for key, shard in self._shards.items() if shard.batches or shard.left is not None
        }

    def has_unhandled(self, keys: Collection[str]) -> bool:
        """Return whether any of these shards has unhandled records."""
        return any(self._shards[key].batches for key in self._shards.keys() & keys)

    def has_dropped_the_rest(self, key: str) -> bool:
        """Return whether records of the shard were dropped, and all records before them are handled."""
        shard = self._shards.get(key)
        return shard is not None and shard.has_dropped and not shard.batches

    def release(self, keys: Collection[str], state: State, now: float) -> bool:
        """Release shards, and drop their records that no handler has begun. Return whether any record was dropped.

        - `state`: the state of the checkpoint, which names the parents of each shard.
        - `now`: time of the monotonic clock (seconds). It counts when a shard is released for the first time.
        """
        self._entries_at_release = state["shards"]
        for key in self._shards.keys() & keys:
            if self._shards[key].released_at is None:
                self._shards[key].released_at = now
        # A shard with a begun descendant is handled to its end, because the state of the descendant cannot be stored before.
        begun = [key for key, shard in self._shards.items() if shard.has_begun]
        may_drop = (self._shards.keys() & keys) - _ancestors(begun, state["shards"])
        dropped = [key for key in may_drop if self._shards[key].drop_unbegun()]
        return bool(dropped)

    def drop_failed(self, item: UnhandledRecord, now: float) -> bool:
        """Drop a failed record that has had its time, with all records behind it. Return whether it was dropped.

        The time is over `RETRY_SECONDS` after the release of the shard. The records of its descendants count as behind it. `now` may be
        infinite, for a record that has no time left.
        """
        key, shard = item.batch.records.shard.key, item.batch.progress
        if shard.released_at is None or now - shard.released_at < RETRY_SECONDS:
            return False
        behind = [self._shards[each] for each in _descendants({key}, self._entries_at_release) & self._shards.keys()]
        if any(each.released_at is None for each in behind):
            return False  # A descendant is still read here, so its records cannot be left to another reader.
        shard.drop_from(item.batch, item.index)
        for each in behind:
            each.drop_all()
        return True

    def revoke(self, keys: Collection[str]) -> None:
        """Drop all records of these shards, and forget their positions. A shard that comes back begins with a new `ShardProgress`."""
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
        """Progress at the end of the last handled batch, if that is behind `storable`."""
        self._latest: Mapping[str, Any] | None = None
        """The state of the last checkpoint."""
        self.released_at: float | None = None
        """When the shard was released (seconds of the monotonic clock)."""
        self.has_handled = False
        """Whether a batch was handled."""
        self.has_dropped = False
        """Whether records were dropped. From then on no newer state may be stored."""
        self.is_revoked = False
        """Whether another process reads the shard."""
        self.left: UnfinishedShard | None = None
        """The records that were dropped here. They are not handled until the next reader handles them. None if there are none."""

    def unhandled(self) -> UnfinishedShard:
        """Return the records that are not handled. There must be some."""
        oldest_ms = [self.batches[0].oldest_unhandled_ms()] if self.batches else []
        left = () if self.left is None else (self.left,)
        records = sum(batch.remaining for batch in self.batches) + sum(each.records for each in left)
        return UnfinishedShard(records, min(oldest_ms + [each.oldest_ms for each in left]))

    def leave(self, record: Record) -> None:
        """Count a record that was dropped, because the next reader of the shard handles it."""
        before = self.left or UnfinishedShard(0, record.arrival_millis)
        self.left = UnfinishedShard(before.records + 1, min(before.oldest_ms, record.arrival_millis))

    @property
    def has_begun(self) -> bool:
        """Whether a handler has begun a record of the shard."""
        return self.has_handled or any(batch.begun for batch in self.batches)

    def add_state(self, state: Mapping[str, Any]) -> None:
        """Remember the state of a checkpoint, which may be stored when the batches written so far are handled."""
        self._latest = state
        if self.has_dropped:
            return  # The state covers dropped records, so it may never be stored.
        if not self.batches:
            self.storable, self._progress_in_batch = state, {}
        elif self._waiting_states and self._waiting_states[-1][0] is self.batches[-1]:
            # Nothing was written since the last checkpoint, so the newer state waits for the same batch.
            self._waiting_states[-1] = (self.batches[-1], state)
        else:
            self._waiting_states.append((self.batches[-1], state))

    def advance(self) -> None:
        """Remove the batches at the front that are finished, and take over the states that waited for them."""
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
        # The latest state says what shard it is. How far it is handled comes from the batch.
        return {name: value for name, value in self._latest.items() if name not in _PROGRESS_FIELDS} | progress

    def drop_unbegun(self) -> bool:
        """Drop the records after the last one that a handler has begun. Return whether there are any.

        The records before it are still handled here: the next reader continues after it, so that no record is handled twice.
        """
        if self.has_dropped or not self.batches or self.batches[-1].begun == len(self.batches[-1].records):
            return False
        self.has_dropped = True
        for batch in reversed(self.batches):
            batch.limit = batch.begun
            if batch.begun:
                break
        return True

    def drop_from(self, first: UnhandledBatch, index: int) -> None:
        """Drop the record at `index` of the batch `first`, and all records after it, including those that are handled."""
        self.has_dropped = True
        batches = list(self.batches)
        for batch in batches[batches.index(first) :]:
            batch.drop_from(index)
            index = 0

    def drop_all(self) -> None:
        """Drop all records of the shard that are here, including those that are handled."""
        self.has_dropped = True
        for batch in self.batches:
            batch.drop_from(0)


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
    """Return the ancestors of the shards `keys`."""

    def parents(key: str) -> list[str]:
        return [f"{key.rpartition('/')[0]}/{parent}" for parent in shards.get(key, {}).get("parents", ())]

    return reachable((parent for key in keys for parent in parents(key)), parents)


def _descendants(keys: Collection[str], shards: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the shards that have an ancestor in `keys`."""
    children: dict[str, list[str]] = {}
    for key, entry in shards.items():
        for parent in entry.get("parents", ()):
            children.setdefault(f"{key.rpartition('/')[0]}/{parent}", []).append(key)
    nearest = (child for key in keys for child in children.get(key, ()))
    return reachable(nearest, lambda key: children.get(key, ()))
