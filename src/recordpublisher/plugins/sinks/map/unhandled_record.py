"""UnhandledRecord: one record that was written to the sink and is not handled yet; with its batch, and with the queue of its key."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import Record, RecordBatch

if TYPE_CHECKING:
    from .handled_positions import ShardProgress

RECORD_OBJECT_BYTES = 330
"""Memory of a `Record`, its `UnhandledRecord` and its `KeyQueue`, beside what the batch holds; measured with a key for each record."""


class UnhandledBatch:
    """A batch of which some records are not handled yet. Its memory counts until all of them are.

    `begun`: the number of its records up to the last one that a handler has begun. Those from `limit` on are dropped.
    """

    __slots__ = ("_unhandled", "batch", "begun", "held_bytes", "limit", "remaining", "shard")

    def __init__(self, batch: RecordBatch, shard: ShardProgress) -> None:
        self.batch = batch
        self.shard = shard
        self.remaining = self.limit = len(batch)
        self.begun = 0
        self._unhandled = bytearray(b"\1") * len(batch)
        shard.batches.append(self)
        self.held_bytes = batch.held_bytes + RECORD_OBJECT_BYTES * len(batch)

    def begin(self, index: int) -> None:
        """A handler begins with the record at this place."""
        if index >= self.begun:
            self.begun = index + 1

    def count_handled(self, index: int) -> None:
        """The record at this place is done with: handled, or dropped."""
        if index < self.limit:
            self._unhandled[index] = 0
        self.remaining -= 1

    def leave(self, index: int) -> None:
        """The record at this place and all behind it are dropped, also those that are handled."""
        self.limit = min(self.limit, index)
        self._unhandled[index:] = b"\1" * (len(self._unhandled) - index)

    def handled_count(self) -> int:
        """How many records are handled up to the first that is not."""
        count = self._unhandled.find(1)
        return len(self._unhandled) if count < 0 else count


class KeyQueue(msgspec.Struct, gc=False, eq=False):
    """The records of one key, of which one may be handled at a time; it exists while there are any.

    `waiting` are those behind the one that may be taken (None: none so far). `unfinished_parents`: while there are some, none may be
    taken, and `waiting` has all. `children`: the queues that wait for this one.
    """

    key: str
    queues: dict[str, KeyQueue]
    waiting: deque[UnhandledRecord] | None = None
    unfinished_parents: int = 0
    children: list[KeyQueue] | None = None


class UnhandledRecord(msgspec.Struct, gc=False, eq=False):
    """`index` is the record's place in its batch; `key_queue` is None when no other record has to wait for this one."""

    record: Record
    index: int
    pending: UnhandledBatch
    key_queue: KeyQueue | None = None
    attempts: int = 0

    @property
    def is_dropped(self) -> bool:
        """Whether another process, or the next start, handles it."""
        return self.pending.shard.is_revoked or self.index >= self.pending.limit

    def as_batch(self) -> RecordBatch:
        """The record as a batch of one."""
        return self.pending.batch.slice(self.index, self.index + 1)

    def __str__(self) -> str:
        record = self.record
        return f"record {SequenceNumber(record.sequence_number, record.sub_sequence_number)} of {record.stream}/{record.shard_id}"
