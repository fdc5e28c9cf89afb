"""Decides what follows when a shard is found, read, emitted, ended or removed: which parts of the fetcher are notified, in which order."""

import logging
from collections.abc import Callable, Iterable, Sequence

from recordpublisher.publishers.errors import StreamNotFoundError
from recordpublisher.publishers.records import RecordBatch

from ..publishers.log_fields import log_extra
from ..publishers.shards import Shard
from .dependencies import FetcherDependencies
from .pipeline.bounded_runs import Bounds, EndReason, RunCompletion, TerminationCondition
from .pipeline.checked_sink_calls import naming_sink
from .pipeline.emitter import Emitter
from .pipeline.reading import ReadTasks
from .pipeline.shard_end_check import ListedAsGoneError
from .shards.shard_entry import ShardEntry, ShardListener
from .shards.shard_table import ShardTable
from .watermarks import Alignment, EndedParentHold, StragglerDetector

log = logging.getLogger("recordpublisher.fetcher")
LISTING_AGE_MS = 60_000
"""How old a listing may be when it arrives (ms). The call takes time, and ListShards is eventually consistent."""


class ShardLifecycle(ShardListener):
    """Notifies the parts of a fetcher, in the right order, of what happened to a shard.

    A shard's entry calls `on_changed` when a reader has brought a batch, when the emitter has written one, or when the shard is excluded
    from watermarks. When the last record of a shard was emitted (`on_ended`), the readers of its children start (`start_readers`).
    """

    def __init__(
        self,
        job: FetcherDependencies,
        completion: RunCompletion,
        request_checkpoint: Callable[[], None],
        *,
        table: ShardTable,
        readers: ReadTasks,
        alignment: Alignment,
        emitter: Emitter,
        ended_parents: EndedParentHold,
        stragglers: StragglerDetector,
    ) -> None:
        self._job = job
        self._completion = completion
        self.request_checkpoint = request_checkpoint
        """Called to request a checkpoint soon."""
        self._table = table
        self._readers = readers
        self._alignment = alignment
        self._emitter = emitter
        self._ended_parents = ended_parents
        self._stragglers = stragglers
        self._run = TerminationCondition(Bounds())

    # --- a run ------------------------------------------------------------------------------------------------------------------

    def start_run(self, run: TerminationCondition) -> None:
        """Start a run. `run` has its bounds."""
        self._run = run
        self._alignment.start_run(run.until_event_time)
        self._emitter.start(run)
        self._readers.start_run(run.ends)

    def cancel_readers(self) -> None:
        """Stop reading at once, because the run has failed. Records that are queued stay until the run has ended."""
        self._readers.cancel()

    async def end_run(self) -> None:
        """End a run: its bounds no longer count, and records that were read but not emitted are dropped."""
        self._run = TerminationCondition(Bounds())
        self._emitter.end_run()
        await self._readers.stop()

    def on_heartbeat(self) -> None:
        """Find shards that are too far behind, report to the watermark tracker, and emit what is due. Called after each sync interval."""
        self._stragglers.update()
        self._alignment.on_max_watermark(self._stragglers.max_watermark)
        self._emitter.on_heartbeat()

    def on_resume(self, gap_seconds: float) -> None:
        """Handle the end of a suspension of the process. `gap_seconds`: how long it lasted.

        No shard counts as idle before its next read, and the global watermark is updated.
        """
        log.warning(
            "nothing ran in this process for %.1f s: it was suspended, had no CPU, or code blocked its event loop",
            gap_seconds,
        )
        self._job.tracker.after_suspension()
        for entry in self._table:
            entry.on_suspension()
        self._alignment.report()

    # --- shards that this worker reads -----------------------------------------------------------------------------------------

    def start_readers(self) -> None:
        """Start every reader that may start now; complete the run if nothing is left to read."""
        if self._completion.is_running:
            started = self._readers.start_ready(self._table)
            self._ended_parents.update()
            self._after_start(started)

    def _start_children_of(self, ended: str) -> None:
        """Start the readers of the children of this shard (`Shard.key`), as `start_readers` does for all shards.

        Only the children of this shard are checked, so the cost stays low when thousands of shards end together.
        """
        if self._completion.is_running:
            started = self._readers.start_ready(self._table.own_children_of(ended))
            self._ended_parents.update_parents_of_children(ended)
            self._after_start(started)

    def _after_start(self, started: Sequence[ShardEntry]) -> None:
        for entry in started:
            state = entry.state
            # `seen_ms` is known only if the parents were read.
            follows_parents = state.position is None and state.seen_ms is not None
            start = state.starting_position(use_continuation=False)
            with naming_sink(self._job.sink, "shard_started"):
                self._job.sink.shard_started(entry.shard, start, follows_parents=follows_parents)
        is_bounded_and_closed = self._run.ends_without_open_shards and not any(entry.is_open for entry in self._table)
        if is_bounded_and_closed or self._is_exhausted():
            self._emitter.on_all_ended()
            self._completion.complete(EndReason.ALL_ENDED)

    def _is_exhausted(self) -> bool:
        discovery = self._job.discovery
        return discovery.streams.is_fixed and self._table.is_exhausted(discovery.opened)

    def on_listing(self, stream: str, listed: Sequence[Shard]) -> None:
        """Start the readers of shards that a complete listing of a stream has added to the table of shards.

        The listing also shows for which ended shards watermarks need not wait any longer.
        """
        self._ended_parents.on_listing(stream, listed)
        self.start_readers()

    async def stop_shards(self, keys: Iterable[str]) -> None:
        """Stop reading these shards, drop their records that were read and not emitted, and wait until no write of their records is in
        progress.

        A write that still waits for its turn does not begin.
        """
        for key in keys:
            if key in self._table:
                self._readers.abandon(self._table[key])
        await self._emitter.wait_for_write()

    def drop_shards(self, keys: Iterable[str]) -> None:
        """Forget these shards. If a write of their records is in progress, its end frees their memory and moves no position."""
        for key in keys:
            if key in self._table:
                self._readers.abandon(self._table[key])
                self._table.remove(key)

    @property
    def hung_publishers(self) -> list[str]:
        """The publishers that have not ended although they were cancelled."""
        return self._readers.hung

    async def wait_for_stopped_readers(self) -> None:
        """Wait until the readers of shards that were stopped or dropped have ended."""
        await self._readers.wait_for_abandoned()

    # --- ShardListener ----------------------------------------------------------------------------------------------------------

    def on_listed(self, shard: Shard, is_in_listing: bool) -> None:
        """Notify the sink of a shard, whichever worker owns it.

        `is_in_listing`: whether a listing has shown the shard. Only then is it known whether the shard is open.
        """
        is_open = is_in_listing and not shard.closed and not shard.is_unlisted
        with naming_sink(self._job.sink, "shard_listed"):
            self._job.sink.shard_listed(shard, self._job.clock.now_ms() - LISTING_AGE_MS if is_open else None)

    def on_added(self, entry: ShardEntry) -> None:
        """Notify the emitter that a shard was added to the table."""
        self._emitter.on_added(entry)

    def on_changed(self, entry: ShardEntry) -> None:
        """Notify the emitter that a shard's queue, stage or idleness changed, or that watermarks begin or cease to wait for it.

        Stop the shard's reader if the run needs no more of its records.
        """
        self._emitter.on_changed(entry)
        if not self._run.needs_more_reads(entry):
            self._readers.finish(entry)

    def on_emitted(self, entry: ShardEntry, batch: RecordBatch) -> None:
        """Notify the emitter that a batch of a shard was emitted, and the sink if the batch had no records to write."""
        self._emitter.on_emitted(entry, batch)
        position = batch.read_position
        if not len(batch) and position is not None and not position.continuation:
            with naming_sink(self._job.sink, "shard_passed"):
                self._job.sink.shard_passed(entry.shard, position)

    def on_ended(self, entry: ShardEntry) -> None:
        """Start the children of a shard whose last record was emitted.

        A checkpoint is requested, because other workers may wait until the end of this shard is stored.
        """
        if entry.shard.stream in self._job.discovery.deleted:
            self._table.remove(entry.key)
            self.complete_without_streams()
            return
        if entry.has_ended_for_now:
            log.info(
                "shard %s was read to the end of its archive, and a later run continues there",
                entry.key,
                extra=log_extra(entry.key),
            )
            self._start_children_of(entry.key)
            return
        children = [child.shard_id for child in entry.reading.children]
        log.info("shard %s has ended, children: %s", entry.key, children, extra=log_extra(entry.key))
        with naming_sink(self._job.sink, "shard_ended"):
            self._job.sink.shard_ended(entry.shard, entry.reading.children)
        self.request_checkpoint()
        self._ended_parents.on_shard_ended(entry)
        self._start_children_of(entry.key)

    def on_removed(self, key: str) -> None:
        """Notify the emitter that a shard was removed from the table."""
        self._emitter.on_removed(key)

    # --- failures ---------------------------------------------------------------------------------------------------------------

    def on_reader_failed(self, entry: ShardEntry, error: BaseException) -> None:
        """Fail the run. If the error proves that the stream was deleted, only stop reading this stream.

        If a source lists its shards itself, only an error of its listing proves that. The same error of a publisher may mean something
        else, and then the stream's positions must be kept.

        Records of a deleted stream that were read are still emitted, and no watermark waits for its shards. All readers of the stream stop,
        because a later stream of the same name would have shards with the same ids.
        """
        factory = self._job.factory
        is_told_by_listing = factory.lists_shards and not factory.ends_open_shards
        is_deleted = isinstance(error, ListedAsGoneError if is_told_by_listing else StreamNotFoundError)
        if not is_deleted:
            self._completion.fail(error)
            return
        self._job.discovery.on_deleted(entry.shard.stream)
        self._end_deleted(entry.shard.stream)
        self.complete_without_streams()

    def complete_without_streams(self) -> None:
        """Complete the run, with a warning, if every stream was deleted and the records that were read from them are written.

        No later start can read these records again.
        """
        if not self._job.discovery.all_deleted or not self._completion.is_running:
            return
        for stream in tuple(self._job.discovery.deleted):
            self._end_deleted(stream)
        if not any(entry.has_unwritten_records for entry in self._table):
            log.warning("the run ends, because every stream of the job was deleted")
            self._emitter.on_all_ended()
            self._completion.complete(EndReason.STREAMS_DELETED)

    def _end_deleted(self, stream: str) -> None:
        """Read no more of a deleted stream. Its shards leave the table when their records that were read are written."""
        for each in [each for each in self._table if each.shard.stream == stream]:
            self._readers.finish(each)
            if not each.has_unwritten_records and not each.has_ended:
                self._table.remove(each.key)
            elif each.is_reading:
                each.end_of_reading(())
