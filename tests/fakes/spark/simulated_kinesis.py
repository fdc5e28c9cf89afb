"""Kinesis in memory for the planner: shards with records, a reader within bounds, and the claims of its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from recordpublisher.fetcher.checkpoints.shard_starts import list_restored
from recordpublisher.fetcher.checkpoints.snapshot_format import RestoredState
from recordpublisher.fetcher.pipeline.bounded_runs import BoundedResult, Bounds, EndReason, ShardOutcome
from recordpublisher.fetcher.pipeline.retention_gaps import ShardObservation
from recordpublisher.fetcher.shards.discovery import MissingShards
from recordpublisher.fetcher.shards.retention_check import RetentionGap
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.spark.source.kinesis_service import ListingCompleteness
from recordpublisher.plugins.spark.source.new_data_watch import LookResult
from recordpublisher.plugins.stores.spark_read_claims import ReadClaimStore, run_without_loop
from recordpublisher.publishers.positions import PositionType, SequenceNumber
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import run_virtual

from ..memory_store import MemoryStore

T = TypeVar("T")
NOW = 1_800_000_000_000
ARRIVED = NOW - 1_000_000


class MemoryClaims(ReadClaimStore):
    """Claims in a dict, without an event loop. `failure` is raised by every call while it is set; `calls` counts them."""

    def __init__(self, markers: Iterable[tuple[str, str]] = ()) -> None:
        self._memory = MemoryStore()
        self.failure: Exception | None = None
        self.calls = 0
        super().__init__(self._memory, self._run_unless_away)
        for query, token in markers:
            self.write_marker(query, token)

    def _run_unless_away(self, work: Coroutine[Any, Any, T]) -> T:
        self.calls += 1
        if self.failure is not None:
            work.close()
            raise self.failure
        return run_without_loop(work)

    def lose_everything(self) -> None:
        self._memory.values.clear()


@dataclass
class ManualClock:
    """A wall clock that the test moves. `set_ms`: by how much it was set since the beginning, which the monotonic clock does not show."""

    ms: int = NOW
    set_ms: int = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return (self.ms - self.set_ms) / 1000

    def set_by(self, ms: int) -> None:
        self.ms += ms
        self.set_ms += ms

    def sleep(self, seconds: float) -> None:
        self.ms += round(seconds * 1000)


@dataclass
class SimulatedShard:
    """`times`: event times of its records; record n has sequence number n + 1 and arrived at ARRIVED + n."""

    shard: Shard
    times: list[int]
    children: tuple[Shard, ...] = ()
    closed: bool = False


@dataclass
class SimulatedKinesis:
    """What planning calls of KinesisService, and the way tasks read, over shards in memory. `out_of_orderness` in ms.

    While `failure` is set, calls of the driver raise it, and reads end with it.
    """

    clock: ManualClock = field(default_factory=ManualClock)
    shards: dict[str, SimulatedShard] = field(default_factory=dict)
    out_of_orderness: int = 0
    discovered: list[Shard] = field(default_factory=list)
    reads: list[tuple[str, list[str]]] = field(default_factory=list)
    oldest_ms: int | None = None
    watched: Mapping[Shard, ShardState] | None = None
    watched_tips: dict[str, int] = field(default_factory=dict)
    empty_seconds: dict[str, int] = field(default_factory=dict)
    kept_ms: int | None = None
    """The stream's retention."""
    unlisted: list[Collection[str]] = field(default_factory=list)
    """What each of the next listings lacks."""
    does_not_tell: bool = False
    failure: Exception | None = None
    skipped: dict[str, int] = field(default_factory=dict)
    late_looks: int = 0
    """How many looks are still late."""
    late_look: LookResult = LookResult.LATE
    behind_latest: bool = False
    """Whether responses before the tip tell how far they are behind it."""
    before_look: Callable[[], None] = lambda: None
    tip_read_ms: int = 0
    """When a read was last at a tip."""

    def __post_init__(self) -> None:
        self.check = ListingCompleteness(self._shard_exists)

    def add(
        self, shard_id: str, times: list[int], parents: tuple[str, ...] = (), stream: str = "s", **described: Any
    ) -> Shard:
        shard = Shard(stream, shard_id, parents, **described)
        self.shards[shard.key] = SimulatedShard(shard, times)
        return shard

    def close(self, shard_id: str, *children: Shard) -> None:
        old = self.shards[f"s/{shard_id}"]
        old.closed, old.children = True, children

    def records(self) -> set[tuple[str, str]]:
        """Shard key and sequence number of every record."""
        return {(key, str(n + 1)) for key, simulated in self.shards.items() for n in range(len(simulated.times))}

    # what planning calls of KinesisService

    def list_shards(self, stream: str) -> list[Shard]:
        return run_virtual(self._list(stream))

    async def _list(self, stream: str) -> list[Shard]:
        if self.failure is not None:
            raise self.failure
        unlisted = self.unlisted.pop(0) if self.unlisted else ()
        listed = [
            each.shard
            for each in self.shards.values()
            if each.shard.stream == stream and each.shard.key not in unlisted
        ]
        if await self.check.is_complete(stream, listed):
            self.discovered = [shard for shard in self.discovered if shard.stream != stream] + listed
        return listed

    def list_restored(
        self, streams: Collection[str], restored: RestoredState
    ) -> tuple[Sequence[Shard], frozenset[str]]:
        missing = MissingShards(self._shard_exists)

        async def list_all() -> list[Shard]:
            return [shard for stream in streams for shard in await self._list(stream)]

        listed = run_virtual(list_restored(list_all, streams, restored, missing))
        return listed, frozenset(filter(missing.is_expired, restored.shards))

    async def _shard_exists(self, shard: Shard) -> bool | None:
        return None if self.does_not_tell else shard.key in self.shards

    def oldest_retained_ms(self, stream: str) -> int | None:
        return self.oldest_ms

    def retention_ms(self, stream: str) -> int | None:
        return self.kept_ms

    def gap_after(self, shard: Shard, state: ShardState, seen_ms: int) -> RetentionGap:
        if self.oldest_ms is None or seen_ms >= self.oldest_ms:
            return RetentionGap.NONE
        model = self.shards[shard.key]
        return RetentionGap.LOST if self._first(state, model) < len(model.times) else RetentionGap.NOT_CHECKED

    def watch(self, shards: Mapping[Shard, ShardState]) -> None:
        self.watched = self.watched or shards

    def has_new_data(self) -> bool:
        if self.late_looks:
            return False  # only a look finds something
        if self.watched and self.failure is not None:
            return True
        watched = (self.watched or {}).items()
        found = {shard.key: self._has_new_data(self.shards[shard.key], state) for shard, state in watched}
        self.watched_tips |= {key: self.clock.ms for key, is_new in found.items() if not is_new}
        return any(found.values())

    def look(self, seconds: float, pause: float = 0.0) -> LookResult:
        self.clock.sleep(0.05)
        self.before_look()
        if self.late_looks:
            self.late_looks -= 1
            self.clock.sleep(seconds - 0.05)
            return self.late_look
        return LookResult.FOUND if self.has_new_data() else LookResult.NOTHING

    def tip_ms(self, key: str) -> int | None:
        return self.watched_tips.get(key)

    def stop_watching(self) -> None:
        self.watched = None

    def _has_new_data(self, model: SimulatedShard, state: ShardState) -> bool:
        return model.closed or self._first(state, model) < len(model.times)

    def server_time_ms(self, stream: str) -> int:
        if self.failure is not None:
            raise self.failure
        return self.clock.now_ms()

    def consumer_arns(self) -> Mapping[str, str]:
        return {}

    def discovered_shards(self, known: Collection[str]) -> list[Shard]:
        self.check.require(known)
        return self.discovered

    # how tasks read

    def read(
        self,
        starts: Mapping[Shard, ShardState],
        bounds: Bounds,
        sink: object,
        publisher: str,
        *,
        is_replay: bool = False,
    ) -> BoundedResult:
        self.reads.append((publisher, sorted(shard.key for shard in starts)))
        if self.failure is not None:
            self.clock.ms += round((bounds.max_time or 0) * 1000)
            failed = {
                shard.key: ShardOutcome(shard, state, seen=ShardObservation(failure=str(self.failure)))
                for shard, state in starts.items()
            }
            return BoundedResult(EndReason.MAX_TIME, failed)
        outcomes = {shard.key: self._read(shard, state, bounds, sink) for shard, state in starts.items()}
        self.clock.ms += 100
        return BoundedResult(EndReason.TIP, outcomes, sum(outcome.records for outcome in outcomes.values()))

    def _read(self, shard: Shard, state: ShardState, bounds: Bounds, sink: object) -> ShardOutcome:
        model = self.shards[shard.key]
        first = self._first(state, model)
        taken, watermark, head = [], state.watermark, None
        if self.empty_seconds.get(shard.key, 0) > (
            bounds.max_time or 0
        ):  # so many seconds of empty responses before the next record
            return ShardOutcome(shard, state, seen=ShardObservation(behind_ms=10**6))
        limit = min(
            bounds.shard_limits.get(shard.key, 10**9), 10**9 if bounds.max_records is None else bounds.max_records
        )
        for event_ms in model.times[first:]:
            mark = max(event_ms - self.out_of_orderness, watermark if watermark is not None else -(2**62))
            if bounds.until_event_time is not None and mark > bounds.until_event_time:
                head = mark
                break
            if len(taken) == limit:
                break
            watermark = mark
            taken.append((event_ms, mark))
        end, count = bounds.ends.get(shard.key), len(taken)
        taken = taken[: count if end is None else end.records_before(self._batch(shard, first, taken))]
        asyncio.run(sink.write(self._batch(shard, first, taken)))  # type: ignore[attr-defined]
        done = first + len(taken)
        at_tip = done == len(model.times)
        ended = at_tip and model.closed
        moved = replace(
            state,
            position=SequenceNumber(str(done)) if taken else state.position,
            watermark=watermark,
            ended=ended,
            arrival_ms=ARRIVED + done - 1 if taken else state.arrival_ms,
            tip_ms=self.clock.ms if at_tip else state.tip_ms,
        )
        children = model.children if ended else ()
        tip = (self.clock.ms, self.clock.ms) if at_tip else None
        self.tip_read_ms = self.clock.ms if at_tip else self.tip_read_ms
        seen = ShardObservation(
            at_tip=at_tip,
            tip_seen_ms=tip,
            past_event_time=head is not None,
            next_watermark=head,
            behind_ms=0 if at_tip or not self.behind_latest else self.clock.ms - (moved.arrival_ms or ARRIVED),
            children=children,
            skipped=self.skipped.get(shard.key, 0),
        )
        return ShardOutcome(
            shard, moved, len(taken), 0, seen, first_past_end=str(done + 1) if len(taken) < count else None
        )

    def _first(self, state: ShardState, model: SimulatedShard) -> int:
        if state.position is not None:
            return int(state.position.sequence)
        if state.start.type is PositionType.AT_TIMESTAMP:
            return min(len(model.times), max(0, (state.start.timestamp_ms or 0) - ARRIVED))
        if state.start.type is PositionType.AT_SEQUENCE_NUMBER:
            return int(state.start.sequence_number or 0) - 1
        return 0

    def _batch(self, shard: Shard, first: int, taken: list[tuple[int, int]]) -> RecordBatch:
        records = [UserRecord(b"x", str(first + n + 1), (ARRIVED + first + n) / 1000, "k") for n in range(len(taken))]
        times, marks = [time for time, _ in taken], [mark for _, mark in taken]
        return RecordBatch(shard, records, 0, None, raw_bytes=100 * len(records), event_times=times, watermarks=marks)
