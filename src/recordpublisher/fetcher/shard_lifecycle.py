"""ShardLifecycle: what follows when something happens to a shard: found, read, emitted, ended, removed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from recordpublisher.consumer.bad_records import OnPoison
from recordpublisher.publishers.log_fields import about
from recordpublisher.publishers.shards import Shard

from .dependencies import FetcherDependencies
from .pipeline.bad_record_handler import BadRecordHandler
from .pipeline.bounds import Bounds, EndReason
from .pipeline.emitter import Emitter
from .pipeline.memory_budget import MemoryBudget
from .pipeline.retention_gaps import RetentionGaps
from .pipeline.shard_queues import ShardQueues
from .pipeline.shard_readers import ShardReaders, is_deleted_stream
from .pipeline.suspension import SuspensionDetector
from .pipeline.termination import RunCompletion, TerminationCondition
from .shards.missing_shards import MissingShards
from .shards.owned_shards import OwnedShards
from .shards.shard_entry import ShardEntry
from .shards.shard_state import ShardState
from .shards.shard_table import ShardTable
from .watermarks.alignment import Alignment
from .watermarks.ended_parent_hold import EndedParentHold
from .watermarks.straggler_exclusion import StragglerDetector

log = logging.getLogger("recordpublisher.fetcher")


class ShardLifecycle:
    """Owns the shards of a subtask and the parts that work on them. Its `on_...` methods are what these parts call.

    The parts work on the same ShardEntry: a reader queues its batches (`on_queue_changed`), which may wake the emitter (`update`). When
    the emitter has written the last one (`on_ended`), the readers of its children start (`start_readers`).
    """

    def __init__(
        self, dependencies: FetcherDependencies, completion: RunCompletion, request_checkpoint: Callable[[], None]
    ) -> None:
        self._dependencies = dependencies
        self._completion = completion
        self._request_checkpoint = request_checkpoint
        self.termination = TerminationCondition(Bounds())
        settings, clock, tracker = dependencies.settings, dependencies.clock, dependencies.tracker
        self.missing = MissingShards(dependencies.shard_exists)
        self.table = ShardTable(tracker.is_finished, self.missing.is_expired, dependencies.is_endless)
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
        self.queues = ShardQueues(
            MemoryBudget(settings.budget),
            settings.idle_interval_ms,
            clock,
            self.suspension,
            self.on_queue_changed,
            self.on_children_found,
            gaps,
        )
        self.bad_records = BadRecordHandler(self.table, settings.on_poison is OnPoison.SKIP, dependencies.dead_letters)
        self.emitter = Emitter(
            dependencies.sink,
            self.alignment,
            self.queues,
            clock,
            self.suspension,
            settings.emit_interval_ms,
            self.on_ended,
            self.bad_records.handle_undeserialized,
        )
        self.readers = ShardReaders(
            dependencies.factory,
            self.table,
            self.queues,
            dependencies.decorator_for,
            dependencies.use_continuations,
            tracker.final_watermark,
            gaps,
        )
        self.ended_parents = EndedParentHold(
            self.table,
            tracker,
            settings.tracker_timeout_ms,
            clock,
            self.update,
            self.alignment.report,
            dependencies.is_endless,
        )
        self.stragglers = StragglerDetector(self.table, tracker, settings.max_lag_ms, self.update)
        self.owned = OwnedShards(
            self.table,
            dependencies.discovery,
            self.missing,
            dependencies.is_ours,
            clock,
            self.count_without_bounds,
            self.on_removed,
        )

    def start_run(self, bounds: Bounds) -> None:
        """A run starts."""
        self.termination = TerminationCondition(bounds)
        self.alignment.until_event_time = bounds.until_event_time
        self.emitter.start()
        self.suspension.reset()

    def start_readers(self) -> None:
        """Start every reader that may start now; complete the run if nothing is left to read."""
        if not self._completion.is_running:
            return
        started = self.readers.start_ready(self.on_queue_changed, self.on_reader_failed)
        self.ended_parents.update()
        self.ended_parents.on_readers_started(started)
        is_bounded_and_closed = self.termination.has_shard_bounds and not any(entry.is_open for entry in self.table)
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
        for entry in self.table:
            if entry.shard.stream == stream:
                self.readers.abandon(entry)
                self.update(entry)
        async with self.emitter.sink_lock:  # the write that is going on has ended, and its position is counted
            pass
        self.owned.remove_stream(stream)
        self._request_checkpoint()
        self.start_readers()
        await self.readers.wait_for_abandoned()

    def on_heartbeat(self) -> None:
        """A sync interval has passed: decide again about stragglers, report, and emit what is due."""
        self.stragglers.update()
        self.alignment.max_watermark = self.stragglers.max_watermark
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

    def on_queue_changed(self, entry: ShardEntry) -> None:
        """A shard's reader started, queued a batch, or reached the shard's end."""
        self.update(entry)
        if not entry.queue and not entry.is_open:
            self.on_ended(entry)

    def update(self, entry: ShardEntry) -> None:
        """A shard's queue, idleness or exclusion changed: update bounds and watermarks, and wake the emitter."""
        self.emitter.update(entry, self.termination)
        if not self.termination.needs_more_reads(entry):
            self.readers.finish_reading(entry)
        self.emitter.wake()

    def count_without_bounds(self, entry: ShardEntry) -> None:
        """A shard was added, or a run is over: watermarks count the shard regardless of the bounds of a run."""
        self.alignment.update(entry)
        self.emitter.local_watermark.update(entry)

    def on_ended(self, entry: ShardEntry) -> None:
        """A shard's last record was emitted. Its children may start; in another subtask once a checkpoint has stored the end (S2)."""
        if self.owned.is_stream_deleted(entry):
            self.owned.remove(entry.key)
            return
        children = [child.shard_id for child in entry.children]
        log.info("shard %s has ended, children: %s", entry.key, children, extra=about(entry.key))
        self._request_checkpoint()
        self.ended_parents.on_shard_ended(entry)
        self.start_readers()

    def on_removed(self, key: str) -> None:
        """A shard was removed from the table."""
        self.emitter.remove(key, self.termination)

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
            entry.idleness.on_suspension()
            if entry.idle:
                entry.idle = False
                self.update(entry)
        self.alignment.report()
