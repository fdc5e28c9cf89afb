"""ReadyRecords: which records may be handled now, by the ordering NONE, PER_KEY or PER_SHARD."""

from collections import deque
from collections.abc import Collection, Sequence
from enum import Enum

from recordpublisher.fetcher.shards.lineage import reachable
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.shards import Shard

from .unhandled_record import KeyQueue, UnhandledBatch, UnhandledRecord


class Ordering(Enum):
    """Which records are handled one after the other.

    NONE: none. PER_KEY: those of one stream with the same partition key, also across a reshard. PER_SHARD: those of one shard, and the
    records of a shard after those of its parents.
    """

    NONE = "NONE"
    PER_KEY = "PER_KEY"
    PER_SHARD = "PER_SHARD"


class ReadyRecords:
    """Owns every record that waits to be handled. `queue` has those that may be taken; the others wait for one with the same key."""

    def __init__(self, ordering: Ordering) -> None:
        self.queue: deque[UnhandledRecord] = deque()
        self._ordering = ordering
        self._queues: dict[str, dict[str, KeyQueue]] = {}
        """By stream and key."""
        self._lineage = ShardLineage()

    def add(self, pending: UnhandledBatch) -> None:
        """Add a batch's records, in order."""
        batch, ready = pending.batch, self.queue
        if self._ordering is Ordering.NONE:
            ready.extend([UnhandledRecord(record, index, pending) for index, record in enumerate(batch)])
            return
        queues = self._queues.setdefault(batch.stream, {})
        is_per_key, key = self._ordering is Ordering.PER_KEY, batch.shard_id
        if not is_per_key and key not in queues:
            self._wait_for_ancestors(batch.shard, queues)
        for index, record in enumerate(batch):
            if is_per_key:
                if record.partition_key is None:  # AUTO record distribution: a record without a key has no order
                    ready.append(UnhandledRecord(record, index, pending))
                    continue
                key = record.partition_key
            queue = queues.get(key)
            if queue is None:
                queues[key] = queue = KeyQueue(key, queues)
                ready.append(UnhandledRecord(record, index, pending, queue))
            elif queue.waiting is None:
                queue.waiting = deque((UnhandledRecord(record, index, pending, queue),))
            else:
                queue.waiting.append(UnhandledRecord(record, index, pending, queue))

    def learn(self, state: State) -> None:
        """The state of a checkpoint names the parents of each shard."""
        if self._ordering is Ordering.PER_SHARD:
            self._lineage.learn(state)

    def take(self, count: int) -> list[UnhandledRecord]:
        """Take up to `count` records that may be handled together; those of one key are in order."""
        taken: list[UnhandledRecord] = []
        while self.queue and len(taken) < count:
            item = self.queue.popleft()
            taken.append(item)
            waiting = None if item.key_queue is None else item.key_queue.waiting
            while waiting and len(taken) < count:
                taken.append(waiting.popleft())
        return taken

    def finish(self, key_queue: KeyQueue) -> None:
        """What was taken of this key is handled: its next record may be taken."""
        if key_queue.waiting:
            self.queue.append(key_queue.waiting.popleft())
            return
        del key_queue.queues[key_queue.key]
        for child in key_queue.children or ():
            child.unfinished_parents -= 1
            if not child.unfinished_parents:
                self.finish(child)

    def take_dropped(self) -> list[UnhandledRecord]:
        """Take all that wait and are dropped."""
        dropped: list[UnhandledRecord] = []
        for queues in self._queues.values():
            for key_queue in queues.values():
                if key_queue.waiting:
                    dropped += [item for item in key_queue.waiting if item.is_dropped]
                    kept = [item for item in key_queue.waiting if not item.is_dropped]
                    key_queue.waiting = deque(kept)
        ready = list(self.queue)
        self.queue.clear()
        self.queue.extend([item for item in ready if not item.is_dropped])
        for item in ready:
            if item.is_dropped:
                dropped.append(item)
                if item.key_queue is not None:
                    self.finish(item.key_queue)
        return dropped

    def clear(self) -> None:
        """Forget every record. They refer to each other, and the garbage collector does not look at them."""
        self.queue.clear()
        for queues in self._queues.values():
            for key_queue in queues.values():
                key_queue.waiting = key_queue.children = None
            queues.clear()

    def take_again(self, items: Sequence[UnhandledRecord]) -> None:
        """These were taken of one key, or are one record without a key, and must be handled again before the key's other records."""
        first, others = items[0], items[1:]
        self.queue.append(first)
        if others and first.key_queue is not None:
            first.key_queue.waiting = deque((*others, *(first.key_queue.waiting or ())))

    def _wait_for_ancestors(self, shard: Shard, queues: dict[str, KeyQueue]) -> None:
        """Make the queue of a shard that has unhandled ancestors."""
        parents = [queues[shard_id] for shard_id in sorted(self._lineage.begin(shard, queues.keys()))]
        if parents:
            child = queues[shard.shard_id] = KeyQueue(shard.shard_id, queues, deque(), len(parents))
            for parent in parents:
                parent.children = [*(parent.children or ()), child]


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
        nearest: set[str] = set()
        unknown: list[str] = []

        def parents(shard_id: str) -> Collection[str]:
            key = f"{shard.stream}/{shard_id}"
            if shard_id in unhandled:
                nearest.add(shard_id)
            elif key in self._parents:
                return self._parents[key]
            elif shard.key not in self._in_checkpoint and key not in self._begun:
                unknown.append(key)
            return ()

        reachable(shard.parents, parents)
        return set(unhandled) if unknown else nearest
