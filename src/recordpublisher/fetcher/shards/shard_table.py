"""ShardTable: the one owner of what changes about each shard of a subtask."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from recordpublisher.publishers.records import RecordBatch, to_millis
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard, is_listing_older_than

from ..watermark_rules import inherited_watermark, is_active, shard_watermark
from .idleness import IdlenessTimer
from .lineage import parent_keys
from .shard_state import ShardState


class ShardStage(Enum):
    """The life of a shard in a subtask, in this order."""

    WAITING = "its parents are not finished (S2)"
    READING = "a publisher reads it"
    DRAINING = "read to its end; records are still queued"
    ENDED = "its last record was emitted"


@dataclass(slots=True)
class ShardEntry:
    """One shard: emitted state, queue, evidence of silence and counters.

    `awaits_child_takeover`: ended, and a child was not yet taken over (W5). `left_behind`: so far behind that nobody waits (W12).
    `offset` is how many records of the queue's first batch were emitted already. `expected_bytes` is what the last read brought, None
    before the first one. `tip_seen_ms`: when the first and the last read of this run that stood at the tip were answered (epoch ms);
    `answered_ms`: when the last read at all was. `rests`: a bounded run has all that it wants of the shard and reads no more of it.
    """

    shard: Shard
    state: ShardState
    stage: ShardStage = ShardStage.WAITING
    queue: deque[RecordBatch] = field(default_factory=deque)
    offset: int = 0
    queued_bytes: int = 0
    queued_records: int = 0
    reserved_bytes: int = 0
    is_writing: bool = False
    expected_bytes: int | None = None
    room: asyncio.Future[int] | None = None
    silence: IdlenessTimer = field(default_factory=IdlenessTimer)
    at_tip: bool = False
    seen_tip: bool = False
    tip_seen_ms: tuple[int, int] | None = None
    rests: bool = False
    idle: bool = False
    awaits_child_takeover: bool = False
    left_behind: bool = False
    tip_ms: int | None = None
    held_since: float | None = None
    held_seconds: float = 0.0
    children: tuple[Shard, ...] = ()
    records: int = 0
    payload_bytes: int = 0
    last_emit_ms: int | None = None
    owned_since_ms: int | None = None
    answered_ms: int | None = None
    late_after_idle: int = 0
    metrics: ShardMetrics = field(default_factory=ShardMetrics)

    @property
    def key(self) -> str:
        """`stream/shard-id`."""
        return self.shard.key

    @property
    def confirmed_state(self) -> ShardState:
        """The emitted state with when a read last stood at the tip behind it, and whether it has started (S5)."""
        tip_ms = self.state.tip_ms if self.tip_ms is None else self.tip_ms
        return replace(self.state, tip_ms=tip_ms, waiting=self.stage is ShardStage.WAITING)

    @property
    def is_open(self) -> bool:
        """Whether the shard counts for watermarks: it may have records to come or queued."""
        return self.stage in (ShardStage.READING, ShardStage.DRAINING)

    @property
    def is_active(self) -> bool:
        """Whether others wait for the shard: open, and not idle unless records are queued (W4); or ended and not inherited yet (W5)."""
        if self.awaits_child_takeover:
            return True
        return is_active(self.is_open and not self.left_behind, self.idle, self.queued_records > 0)

    @property
    def alignment_watermark(self) -> int | None:
        """The watermark with which the shard enters the global minimum (W1)."""
        return shard_watermark(self.next_watermark, self.state.watermark)

    @property
    def next_watermark(self) -> int | None:
        """The watermark of the next record to emit; None when nothing, or only a marker, is next."""
        if not self.queue or not self.queue[0].watermarks:
            return None
        return self.queue[0].watermarks[self.offset]

    def push(self, batch: RecordBatch) -> int:
        """Queue a batch behind the others; answers the bytes that it made free.

        Of markers in a row only the last counts: while a sink stalls they would pile up without a bound (P6).
        """
        freed = 0
        if self.queue and not len(batch) and not len(self.queue[-1]):
            freed = self.queue.pop().held_bytes
            self.queued_bytes -= freed
        self.queue.append(batch)
        self.queued_bytes += batch.held_bytes
        self.queued_records += len(batch)
        return freed

    def pop(self, count: int) -> tuple[RecordBatch, int]:
        """Take the next `count` records of the first batch; also how many queued bytes that gave back."""
        head = self.queue[0]
        stop = self.offset + count
        part = head.slice(self.offset, stop)
        self.queued_records -= len(part)
        if stop < len(head):
            self.offset = stop
            return part, 0
        self.queue.popleft()
        self.offset = 0
        self.queued_bytes -= head.held_bytes
        return part, head.held_bytes

    def emitted(self, batch: RecordBatch, now_ms: int) -> None:
        """Move the position behind an emitted batch: the other half of the one step of S1."""
        self.state = _advanced(self.state, batch)
        if len(batch):
            self.records += len(batch)
            self.payload_bytes += batch.raw_bytes
            self.last_emit_ms = now_ms
        if self.stage is ShardStage.DRAINING and not self.queue:
            self.end()

    def end(self) -> None:
        """Everything was emitted: only now is the shard ended (S2)."""
        self.stage = ShardStage.ENDED
        self.state = replace(self.state, ended=True, continuation=None)

    def drop_queue(self) -> int:
        """Forget what was read but not emitted, at the end of a run; answers the bytes given back."""
        freed = self.queued_bytes + self.reserved_bytes
        self.queue.clear()
        self.offset = self.queued_bytes = self.queued_records = self.reserved_bytes = 0
        self.room = None
        self.is_writing = False
        return freed


def _advanced(state: ShardState, batch: RecordBatch) -> ShardState:
    position = batch.read_position
    if position is None:
        return state
    if position.continuation:
        return replace(state, continuation=position.sequence)
    if not len(batch):
        return replace(state, position=position, continuation=None)
    watermark = batch.watermark if batch.watermark is not None else state.watermark
    return replace(
        state,
        position=position,
        continuation=None,
        watermark=watermark,
        arrival_ms=to_millis(batch.records[-1].arrival),
    )


class ShardTable:
    """Every shard that a subtask knows: its own with their entries, the others by name only."""

    def __init__(self, finished_elsewhere: Callable[[str], bool] = lambda key: False) -> None:
        self._entries: dict[str, ShardEntry] = {}
        self._listed: dict[str, Shard] = {}
        self._last_listing: dict[str, set[str]] = {}
        self._gone: set[str] = set()
        self._finished_elsewhere = finished_elsewhere

    def __iter__(self) -> Iterator[ShardEntry]:
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __getitem__(self, key: str) -> ShardEntry:
        return self._entries[key]

    def learn(self, shards: Iterable[Shard]) -> list[Shard]:
        """Remember listed shards, whoever owns them; answers those not heard of before."""
        fresh = [shard for shard in shards if shard.key not in self._listed]
        self._listed.update({shard.key: shard for shard in fresh})
        return fresh

    def listed(self) -> dict[str, Shard]:
        """Every shard ever heard of, by key."""
        return self._listed

    def add(self, shard: Shard, state: ShardState) -> ShardEntry:
        """Own a shard."""
        stage = ShardStage.ENDED if state.ended else ShardStage.WAITING
        entry = ShardEntry(shard, replace(state, parents=shard.parents), stage)
        self._entries[shard.key] = entry
        self._listed.setdefault(shard.key, shard)
        return entry

    def startable(self) -> list[ShardEntry]:
        """Waiting shards whose parents, both of a merge, are finished (S2)."""
        return [entry for entry in self if entry.stage is ShardStage.WAITING and self.parents_finished(entry.shard)]

    def parents_finished(self, shard: Shard) -> bool:
        """Whether every parent's last record was emitted; one that a listing with the shard leaves out is past retention.

        A parent that we have only not heard of yet is waited for: the other parent's end may tell of a child first.
        """
        return all(self._is_finished(parent, shard) for parent in parent_keys(shard))

    def inherited_watermark(self, shard: Shard, elsewhere: Callable[[str], int | None]) -> int | None:
        """The lowest watermark of a shard's parents, at which a child begins to count (W5); `elsewhere` tells those of other subtasks."""
        parents = parent_keys(shard)
        own = [self._entries[key].state.watermark for key in parents if key in self._entries]
        others = [elsewhere(key) for key in parents if key not in self._entries and key in self._listed]
        return inherited_watermark([*own, *others])

    def expired(self, stream: str, listed: Iterable[Shard]) -> list[str]:
        """Shards that the last whole listing of a stream had and this one has not, as soon as they may be forgotten (S5).

        That is an ended shard of ours whose children here have started; those elsewhere may start since nobody lists their parent.
        A listing older than the one before says nothing about younger shards: forgotten, they would be read again from their start.
        """
        listed = list(listed)
        now = {shard.key for shard in listed}
        missing = self._last_listing.get(stream, set()) - now
        young = {key for key in missing if key in self._listed and is_listing_older_than(self._listed[key], listed)}
        self._gone = (self._gone | missing) - now - young
        self._last_listing[stream] = now | young
        awaited = {parent for entry in self if entry.stage is ShardStage.WAITING for parent in parent_keys(entry.shard)}
        own = self._entries
        done = {
            key for key in self._gone if key not in own or (own[key].stage is ShardStage.ENDED and key not in awaited)
        }
        self._gone -= done
        return list(done)

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing can come any more: every listed shard, whoever owns it, was closed when listed, and ours were read to their ends.

        A Kinesis stream always lists an open shard; only sources of a finite size get here.
        """
        all_closed = bool(self._listed) and all(shard.closed for shard in self._listed.values())
        return all_closed and all(entry.stage is ShardStage.ENDED for entry in self)

    def states(self) -> dict[str, ShardState]:
        """What a snapshot covers."""
        return {entry.key: entry.confirmed_state for entry in self}

    def forget(self, key: str) -> None:
        """Drop a shard that is no more."""
        self._entries.pop(key, None)
        self._listed.pop(key, None)

    def _is_finished(self, key: str, child: Shard) -> bool:
        own = self._entries.get(key)
        if own is not None:
            return own.stage is ShardStage.ENDED
        if self._finished_elsewhere(key):
            return True
        return key not in self._listed and child.key in self._last_listing.get(child.stream, ())
