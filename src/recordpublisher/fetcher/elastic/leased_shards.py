"""Begins, stops and drops the shards of a running fetcher as its worker acquires and loses leases."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

from recordpublisher.publishers.shards import Shard, stream_of

from ..checkpointer import Snapshotter
from ..checkpoints.staged_commits import CommitCounts
from ..dependencies import FetcherDependencies
from ..leases.group_watermark import ShardWatermark
from ..leases.planning import LoadRate
from ..leases.position_documents import StoredPosition
from ..leases.position_store import CheckpointPositions
from ..pipeline.checked_sink_calls import copied_state, naming_sink, states_of_sink, unfinished_of
from ..pipeline.dead_letters import DeadLetterHandler
from ..pipeline.emitter import Emitter
from ..shard_lifecycle import ShardLifecycle
from ..shards.lineage import parent_keys
from ..shards.read_state import latest
from ..shards.shard_state import ShardState
from ..shards.shard_table import ShardTable
from ..sink import Checkpoint, CommittingSink, RevocationReason
from .positions_with_rows import SinkLives


class LeasedShards:
    """Reads the shards whose leases this worker holds (the `ShardReaders` port).

    A lease has only the key of a shard, but reading also needs the shard's hash range, so a new shard waits in `unknown` until a listing
    shows it. A shard whose stream is no longer read keeps its lease, and its position is stored unchanged.
    """

    def __init__(
        self,
        job: FetcherDependencies,
        table: ShardTable,
        shards: ShardLifecycle,
        emitter: Emitter,
        dead_letters: DeadLetterHandler,
        snapshotter: Snapshotter,
    ) -> None:
        self._table = table
        self._shards = shards
        self._emitter = emitter
        self._dead_letters = dead_letters
        self._snapshotter = snapshotter
        self._tracker = job.tracker
        self._sink = job.sink
        self._clock = job.clock
        self._streams = job.streams
        self._is_aligned = job.settings.alignment.lookahead_ms is not None
        self._deleted = job.discovery.deleted
        self._known: dict[str, Shard] = {}
        self._begun: dict[str, BegunShard] = {}
        self._rates: dict[str, LoadRate] = {}
        self._leases = 0
        self._stopped: set[str] = set()
        self.has_unknown = asyncio.Event()
        self.sink_lives = SinkLives(job.sink, emitter, job.clock) if isinstance(job.sink, CommittingSink) else None
        """Decides which worker of this process uses the `CommittingSink`; None for other sinks."""

    @property
    def commit_counts(self) -> CommitCounts | None:
        """Counts and times of the commits of a `CommittingSink`; None for other sinks."""
        return None if self.sink_lives is None else self.sink_lives.counts

    @property
    def unknown(self) -> set[str]:
        """The shards that this worker should read, and that no listing has shown yet.

        Shards that have ended, or whose stream is not read, are left out.
        """
        begun = (key for key, each in self._begun.items() if self._is_read(key) and not each.state.ended)
        return {key for key in begun if key not in self._table}

    def states(self, shards: Iterable[str]) -> dict[str, ShardState]:
        """Return the state from which this process began to read each of these shards."""
        return {key: self._begun[key].state for key in shards}

    def end_expired(self, shards: Iterable[str]) -> None:
        """Mark these shards as ended, so that their children can begin. The shards are past retention."""
        for key in shards:
            state = self._begun[key].state
            seen_ms = latest(state.arrival_ms, state.tip_ms, state.seen_ms)
            self._begun[key] = self._begun[key]._replace(state=replace(state, ended=True, seen_ms=seen_ms))
        self._shards.request_checkpoint()

    def on_listed(self, listed: Iterable[Shard]) -> None:
        """Handle a complete listing: begin to read the shards that waited for it."""
        before, self._known = self._known, {shard.key: shard for shard in listed}
        for key in self._known.keys() - before.keys():
            self._shards.on_listed(self._known[key], is_in_listing=True)
        for key in self.unknown:
            self._add(key)
        self._shards.start_readers()

    async def on_streams(self) -> None:
        """Handle a new list of streams: stop the shards of removed streams, and begin those of new ones.

        An ended shard of a removed stream stays in the table until its children have leases.
        """
        stopped = [entry for entry in self._table if not self._is_read(entry.key) and not entry.has_ended]
        if stopped:
            await self._shards.stop_shards(entry.key for entry in stopped)
        for entry in stopped:
            if not entry.is_removed and entry.key in self._begun and not self._is_read(entry.key):
                self._begun[entry.key] = self._begun[entry.key]._replace(state=entry.snapshot_state)
                self._shards.drop_shards([entry.key])
        await self._shards.wait_for_stopped_readers()
        if self.unknown:
            self.has_unknown.set()

    # --- ShardReaders ----------------------------------------------------------------------------------------------------------

    def begin(self, shard: str, state: ShardState, *, is_taken_over: bool = False) -> None:
        """Begin to read a shard from this state.

        `is_taken_over`: whether another worker has held the shard, and the shard was not idle there. A worker that was sealed (declared
        dead) may have read further than it has stored, so this worker's first records may be late.

        Raises: the error of the sink's `assigned`. The shard then keeps its position, and nothing of it is read.
        """
        below = self._tracker.current() if is_taken_over else None
        self._leases += 1
        self._begun[shard] = BegunShard(state, self._leases, below)
        try:
            with naming_sink(self._sink, "assigned"):
                self._sink.assigned([shard])
        except Exception:
            self._stopped.add(shard)
            raise
        self._add(shard)
        self._shards.start_readers()

    async def stop(self, shards: Collection[str]) -> None:
        """Stop reading these shards, and wait until no write of their records is in progress."""
        self._stopped |= self._begun.keys() & set(shards)
        await self._shards.stop_shards(shards)

    def drop(self, shards: Mapping[str, RevocationReason]) -> None:
        """Forget these shards, and let the sink drop their queued records."""
        if revoked := {key: reason for key, reason in shards.items() if key in self._begun}:
            with naming_sink(self._sink, "revoked"):
                self._sink.revoked(revoked)
        for key in shards:
            self._begun.pop(key, None)
            self._rates.pop(key, None)
            self._stopped.discard(key)
        self._shards.drop_shards(shards)

    def has_unfinished(self, shards: Collection[str]) -> bool:
        """Return whether any record of these shards is not written yet, or not finished by the sink. Their streams were deleted."""
        # Another process may have found the deletion, so these streams need not be in `self._deleted`.
        if any(entry.has_unwritten_records for entry in self._table if entry.key in shards):
            return True
        left = unfinished_of(self._sink)
        return left is not None and not left.shards.keys().isdisjoint(shards)

    @property
    def in_flight(self) -> int:
        """Number of records that the sink is writing now, plus the number of running calls of user code. Neither can be stopped."""
        left = unfinished_of(self._sink)
        return self._emitter.records_in_write + (0 if left is None else left.calls)

    def drop_all(self) -> None:
        """Forget every shard, and let the sink drop all queued records. The next reader of a shard reads its records again."""
        self.drop(dict.fromkeys(self._begun, RevocationReason.LOST))
        self._emitter.turn.allow_flush()

    @asynccontextmanager
    async def checkpoint(self, *, may_be_partial: bool = False) -> AsyncIterator[CheckpointPositions]:
        """Flush the sink, and provide the position that each shard had before the flush.

        A `CommittingSink` is not flushed. No write runs while the caller's `async with` block commits the positions with the rows.
        """
        async with self._emitter.between_writes():
            if self.sink_lives is not None:
                await self._dead_letters.flush()
                yield CheckpointPositions({key: self._position(key) for key in self._begun}, is_before_commit=True)
                return
            positions = {key: self._position(key) for key in self._begun}
            found = await self._flush(positions, may_be_partial)
        yield found

    def watermarks(self) -> Mapping[str, ShardWatermark]:
        """Return the watermark with which each shard counts for the group's watermark.

        A shard that has ended counts until the lease table has its children, so that the group's watermark cannot pass their records.
        """
        return {key: self._watermark(key) for key in self._begun}

    @property
    def is_aligned(self) -> bool:
        """Whether the job aligns its shards (it has a lookahead)."""
        return self._is_aligned

    @property
    def is_held(self) -> bool:
        """Whether alignment holds back a shard of this worker."""
        return any(entry.status.is_held for entry in self._table)

    def loads(self) -> Mapping[str, float]:
        """Return the load of each shard that has been read for a minute (bytes per second, averaged over about the last minute)."""
        now = self._clock.monotonic()
        found = {key: 0.0 for key in self._begun if not self._is_read(key)}
        for entry in self._table:
            if (rate := self._rates.get(entry.key)) is not None:
                rate.observe(entry.emission.payload_bytes, now)
                if (load := rate.bytes_per_second) is not None:
                    found[entry.key] = load
        return found

    # ---------------------------------------------------------------------------------------------------------------------------

    async def _flush(self, positions: Mapping[str, StoredPosition], may_be_partial: bool) -> CheckpointPositions:
        """Flush the sink, and return the positions that it has confirmed. They may be older than `positions`.

        An older position is left out if this worker has since lost the shard and acquired it again. Another worker may have read the shard
        in between.
        """
        shards = {key: {**stored.state.to_json(), "lease": self._begun[key].lease} for key, stored in positions.items()}
        state = {**self._snapshotter.snapshot(), "shards": shards}
        await self._dead_letters.flush()
        with naming_sink(self._sink, "flush"):
            confirmed = await self._sink.flush(
                Checkpoint(copied_state(state), may_be_partial, frozenset(self._stopped))
            )
        if not (found_states := states_of_sink(self._sink, "flush", confirmed)):
            return CheckpointPositions(positions)
        (confirmed,) = found_states
        with naming_sink(self._sink, "has_stopped"):
            given_up = {key for key in shards if self._sink.has_stopped(key)}
        found: dict[str, StoredPosition] = {}
        for key, given in shards.items():
            entry = confirmed["shards"].get(key)
            if entry == given:
                found[key] = positions[key]
            elif entry is not None and entry.get("lease") == given["lease"]:
                older = ShardState.from_json(entry)
                found[key] = StoredPosition(older, positions[key].children if older.ended else {})
            elif key in given_up:
                found[key] = StoredPosition(self._begun[key].state)
        newer = {key for key, given in shards.items() if confirmed["shards"].get(key) != given}
        return CheckpointPositions(found, newer - given_up)

    def _is_read(self, key: str) -> bool:
        """Return whether the shard's stream is in the list of streams and was not deleted.

        A shard of another stream is not read, but keeps its lease and position.
        """
        stream = stream_of(key)
        return stream in self._streams and stream not in self._deleted

    def _add(self, key: str) -> None:
        if not self._is_read(key) or self._begun[key].state.ended:
            return
        # The last read of its parent may have named the child before any listing shows it.
        shard = self._known.get(key) or self._table.listed_shards().get(key)
        if shard is None:
            self.has_unknown.set()
            return
        begun = self._begun[key]
        entry = self._table.add(
            shard, begun.state, owned_since_ms=self._clock.now_ms(), taken_over_below=begun.taken_over_below
        )
        self._rates[key] = LoadRate(self._clock.monotonic())
        if key in self._stopped:
            entry.abandon()

    def _position(self, key: str) -> StoredPosition:
        if key not in self._table:
            return StoredPosition(self._begun[key].state, is_idle=not self._is_read(key))
        entry = self._table[key]
        children = (
            {child.key: tuple(parent_keys(child)) for child in entry.reading.children} if entry.state.ended else {}
        )
        return StoredPosition(entry.snapshot_state, children, self._watermark(key).is_idle)

    def _watermark(self, key: str) -> ShardWatermark:
        if key not in self._table:
            return ShardWatermark(self._begun[key].state.watermark, is_idle=not self._is_read(key))
        entry = self._table[key]
        is_idle = not entry.has_ended and entry.is_open and not entry.is_active
        return ShardWatermark(entry.alignment_watermark, is_idle)


class BegunShard(NamedTuple):
    """The state from which this process began to read a shard, and a number of the lease that is unique in this process.

    `taken_over_below`: the global watermark when this process acquired the shard from another one (epoch ms), else None.
    """

    state: ShardState
    lease: int
    taken_over_below: int | None = None
