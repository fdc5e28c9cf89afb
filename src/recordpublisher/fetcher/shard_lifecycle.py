"""ShardLifecycle: what follows when something happens to a shard: found, read, emitted, ended, removed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from recordpublisher.consumer.bad_records import OnPoison
from recordpublisher.publishers.log_fields import about
from recordpublisher.publishers.shards import Shard

from .dependencies import FetcherDependencies
from .pipeline.bad_record_handler import BadRecordHandler
from .pipeline.bounds import Bounds, EndReason
from .pipeline.emitter import AlwaysOpenGate, Emitter
from .pipeline.lease_gate import CurrentWorker, LeaseGate
from .pipeline.memory_budget import MemoryBudget
from .pipeline.read_intake import ReadIntake
from .pipeline.read_tasks import ReadTasks, is_deleted_stream
from .pipeline.retention_gaps import RetentionGaps
from .pipeline.suspension import SuspensionDetector
from .pipeline.termination import RunCompletion, TerminationCondition
from .shards.missing_shards import MissingShards
from .shards.owned_shards import OwnedShards
from .shards.shard_entry import ShardEntry, ShardListener
from .shards.shard_state import ShardState
from .shards.shard_table import ShardTable
from .watermarks.alignment import Alignment
from .watermarks.ended_parent_hold import EndedParentHold
from .watermarks.straggler_exclusion import StragglerDetector

log = logging.getLogger("recordpublisher.fetcher")


class ShardLifecycle(ShardListener):
    """Owns the shards of a subtask and the parts that work on them, and what follows when something happens to a shard.

    A reader brings a batch, the emitter has written one, a shard is excluded: the entry tells it (`on_changed`). When the last record was
    emitted (`on_ended`), the readers of its children start (`start_readers`).
    """

    def __init__(
        self,
        dependencies: FetcherDependencies,
        completion: RunCompletion,
        request_checkpoint: Callable[[], None],
        current: CurrentWorker | None = None,
    ) -> None:
        """`current`: the worker of this process, where shards move between processes (ELASTIC)."""
        self._dependencies = dependencies
        self._completion = completion
        self._request_checkpoint = request_checkpoint
        self._run = TerminationCondition(Bounds())
        settings, clock, tracker = dependencies.settings, dependencies.clock, dependencies.tracker
        self.missing = MissingShards(dependencies.shard_exists)
        self.table = ShardTable(tracker.is_finished, self.missing.is_expired, dependencies.is_endless, self)
        self.suspension = SuspensionDetector(clock, self.on_resume)
        self.alignment = Alignment(
            tracker,
            dependencies.subtask,
            settings.lookahead_ms,
            settings.startup_timeout_ms,
            clock,
            self.suspension,
        )
        self.retention = dependencies.retention
        gaps = RetentionGaps(self.retention, self.suspension, clock, settings.continue_on_data_loss)
        self.gaps = gaps
        self.gate = AlwaysOpenGate() if current is None else LeaseGate(current, self.suspension, clock)
        self.intake = ReadIntake(
            MemoryBudget(settings.budget),
            settings.idle_interval_ms,
            clock,
            self.suspension,
            self.on_children_found,
            gaps,
        )
        self.bad_records = BadRecordHandler(self.table, settings.on_poison is OnPoison.SKIP, dependencies.dead_letters)
        self.emitter = Emitter(
            dependencies.sink,
            self.alignment,
            self.intake,
            clock,
            self.suspension,
            settings.emit_interval_ms,
            self.bad_records.handle_undeserialized,
            self.gate,
        )
        self.readers = ReadTasks(
            dependencies.factory,
            self.table,
            self.intake,
            dependencies.decorator_for,
            dependencies.use_continuations,
            tracker.final_watermark,
            gaps,
            self.on_reader_failed,
        )
        self.ended_parents = EndedParentHold(
            self.table,
            tracker,
            settings.tracker_timeout_ms,
            clock,
            self.alignment.report,
            dependencies.is_endless,
        )
        self.stragglers = StragglerDetector(self.table, tracker, settings.max_lag_ms)
        self.owned = OwnedShards(
            self.table,
            dependencies.discovery,
            self.missing,
            dependencies.is_ours,
            clock,
        )

    def start_run(self, run: TerminationCondition) -> None:
        """A run starts, with its bounds."""
        self._run = run
        self.alignment.start_run(run.until_event_time)
        self.emitter.start(run)
        self.suspension.reset()

    async def end_run(self) -> None:
        """A run is over: its bounds do not count any more, and what was read but not emitted is dropped."""
        self._run = TerminationCondition(Bounds())
        self.emitter.end_run()
        await self.readers.stop()

    def start_readers(self) -> None:
        """Start every reader that may start now; complete the run if nothing is left to read."""
        if not self._completion.is_running:
            return
        started = self.readers.start_ready()
        self.ended_parents.update()
        self.ended_parents.on_readers_started(started)
        is_bounded_and_closed = self._run.ends_without_open_shards and not any(entry.is_open for entry in self.table)
        if is_bounded_and_closed or self.table.is_exhausted:
            self._completion.complete(EndReason.ALL_ENDED)

    def begin_stream(
        self, listed: Sequence[Shard], states: Mapping[str, ShardState], unlisted: Mapping[str, ShardState]
    ) -> None:
        """Read a stream that came into the list: the arguments of `OwnedShards.add_initial` (S10)."""
        self.owned.add_stream(listed, states, unlisted)
        self.start_readers()

    async def stop_stream(self, stream: str) -> None:
        """Read a stream no more: what is unread is dropped, positions are kept, and no watermark waits for it (S10)."""
        await self.stop_shards([entry.key for entry in self.table if entry.shard.stream == stream])
        self.owned.remove_stream(stream)
        self._request_checkpoint()
        self.start_readers()
        await self.readers.wait_for_abandoned()

    async def stop_shards(self, keys: Iterable[str]) -> None:
        """Read these shards no more, drop what is unread, and return when no write of theirs is going on: one that waits does not begin."""
        for key in keys:
            if key in self.table:
                self.readers.abandon(self.table[key])
        await self.emitter.wait_for_write()

    def drop_shards(self, keys: Iterable[str]) -> None:
        """Forget these shards. A write that is going on gives its memory back when it has ended, and nothing else follows from it."""
        for key in keys:
            if key in self.table:
                self.readers.abandon(self.table[key])
                self.table.remove(key)

    def on_heartbeat(self) -> None:
        """A sync interval has passed: decide again about stragglers, report, and emit what is due."""
        self.stragglers.update()
        self.alignment.on_max_watermark(self.stragglers.max_watermark)
        self.emitter.on_heartbeat()

    async def on_listing(self, stream: str, listed: list[Shard]) -> None:
        """Discovery has listed a stream: add and remove shards."""
        if stream not in self._dependencies.discovery.opened:
            return  # it left the list meanwhile
        await self.owned.apply_listing(stream, listed)
        self.ended_parents.on_listing(stream, listed)
        self.start_readers()

    def on_children_found(self, children: Sequence[Shard]) -> None:
        """The end of a shard named its children: they are added at once, without waiting for a listing (S3)."""
        self.owned.add_new(children)

    def on_added(self, entry: ShardEntry) -> None:
        """A shard came into the table."""
        self.emitter.on_added(entry)

    def on_changed(self, entry: ShardEntry) -> None:
        """A shard's queue, stage, idleness or part in watermarks changed."""
        self.emitter.on_changed(entry)
        if not self._run.needs_more_reads(entry):
            self.readers.finish(entry)

    def on_ended(self, entry: ShardEntry) -> None:
        """A shard's last record was emitted. Its children may start; in another subtask once a checkpoint has stored the end (S2)."""
        if self.owned.is_stream_deleted(entry):
            self.table.remove(entry.key)
            return
        children = [child.shard_id for child in entry.reading.children]
        log.info("shard %s has ended, children: %s", entry.key, children, extra=about(entry.key))
        self._request_checkpoint()
        self.ended_parents.on_shard_ended(entry)
        self.start_readers()

    def on_removed(self, key: str) -> None:
        """A shard was removed from the table."""
        self.emitter.on_removed(key)

    def on_reader_failed(self, entry: ShardEntry, error: BaseException) -> None:
        """A reader failed: the run fails, unless the stream was deleted."""
        if not is_deleted_stream(error):
            self._completion.fail(error)
            return
        self.owned.on_stream_deleted(entry)
        self.complete_without_streams()

    def complete_without_streams(self) -> None:
        """Complete the run if every stream was deleted (S8)."""
        if self._dependencies.discovery.all_deleted:
            self._completion.complete(EndReason.STREAMS_DELETED)

    def on_resume(self, gap_seconds: float) -> None:
        """The process was suspended: no shard counts as idle before it was read again, and the global watermark is refreshed (W3, W7)."""
        log.warning("subtask %d was suspended for %.1f s", self._dependencies.subtask, gap_seconds)
        self._dependencies.tracker.after_suspension()
        for entry in self.table:
            entry.on_suspension()
        self.alignment.report()
