"""Reads the shards of a job: `ReadTasks` runs a task for each shard, and `ReadIntake` queues the batches that the tasks read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from recordpublisher.consumer.end_position import RunEnd
from recordpublisher.consumer.shard_consumer import BatchDecorator, ShardConsumer, add_publisher_note
from recordpublisher.publishers.base import (
    RecordPublisherFactory,
    RunResult,
    make_publisher,
)
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import DataLossError, PluginError
from recordpublisher.publishers.log_fields import key_fields, log_extra, log_fields
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.retry import duration_words
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.user_code import (
    LEFT_BEHIND,
    as_plugin_error,
    end_or_leave,
    is_being_cancelled,
    line_in_user_code,
    waiting_line,
)

from ..settings import FetcherSettings
from ..shards.lineage import parent_keys
from ..shards.read_state import ReadMoment
from ..shards.shard_entry import ShardEntry
from ..shards.shard_table import ShardTable
from .memory_budget import MemoryBudget, PendingReads, ReadBlock
from .process_suspension import SuspensionDetector
from .retention_gaps import RetentionGaps
from .shard_end_check import ShardEndCheck

log = logging.getLogger("recordpublisher.fetcher")
CLOCK_BEHIND_MS = 5_000
"""If a record arrived this much later than the present time (ms), this machine's clock is slow."""
MAX_LOSSES = 10
"""How many times in a row a publisher may raise DataLossError without a record in between."""


class ReadTasks:
    """Starts and ends the readers of a run: one task for each shard that is read."""

    def __init__(
        self,
        factory: RecordPublisherFactory,
        table: ShardTable,
        intake: ReadIntake,
        decorator_for: Callable[[Shard, ShardMetrics], BatchDecorator],
        use_continuations: bool,
        gaps: RetentionGaps,
        clock: Clock,
        settings: FetcherSettings,
        on_failed: Callable[[ShardEntry, BaseException], None],
    ) -> None:
        self._factory = factory
        self._table = table
        self._intake = intake
        self._decorator_for = decorator_for
        self._use_continuations = use_continuations
        self._gaps = gaps
        self._ends = ShardEndCheck(factory, clock)
        self._on_failed = on_failed
        self._drain_seconds = settings.drain_ms / 1000
        self._run_ends: Mapping[str, RunEnd] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._abandoned: set[asyncio.Task[None]] = set()
        self._cancelled: set[asyncio.Task[None]] = set()
        """Readers of this run that were cancelled by this class. If another reader ends as cancelled, its publisher has failed."""

    def start_run(self, ends: Mapping[str, RunEnd]) -> None:
        """Start a run. `ends`: where the run ends in some shards, by `Shard.key`."""
        self._run_ends = ends

    def start_ready(self, entries: Iterable[ShardEntry]) -> list[ShardEntry]:
        """Start a reader for each of these shards that may be read and has none. Return the shards that have started.

        A shard that this process has abandoned while the shard waited for its parents counts as started, without a reader. Otherwise its
        stored position would say that it still waits.
        """
        started: list[ShardEntry] = []
        for entry in entries:
            if self._table.may_start(entry):
                # A child counts for watermarks from the moment it may start, at the lowest watermark of its parents
                # (W5).
                entry.start_reading(self._table.inherited_watermark(entry.shard))
                started += self._started(entry)
            elif entry.needs_reader and entry.key not in self._tasks:
                entry.start_reading()
                started += self._started(entry)
        self._intake.share_among(len(self._tasks))
        return started

    def finish(self, entry: ShardEntry) -> None:
        """Read no more of a shard in this run. Records that are already queued are still emitted."""
        if entry.needs_reader:
            entry.finish_reading()
            # Released now, because a shard of a deleted stream leaves the table before the run ends.
            self._intake.cancel_read(entry)
            if entry.key in self._tasks:  # The task is missing if its reader has failed.
                self._cancel(self._tasks[entry.key])

    def abandon(self, entry: ShardEntry) -> None:
        """Read no more of a shard in this process, and drop its queued records. Another process may read the shard now."""
        task = self._tasks.pop(entry.key, None)
        if task is not None:
            self._abandoned.add(task)
            self._cancel(task)
        entry.abandon()
        self._intake.drop(entry)

    async def wait_for_abandoned(self) -> None:
        """Wait until the readers of abandoned shards have ended, but no longer than `flink.job.drain.timeout`."""
        await self._end_or_leave(list(self._abandoned))

    @property
    def hung(self) -> list[str]:
        """The readers that have not ended although they were cancelled, each with the line of code at which it waits."""
        return [self._words_of(task).rstrip(",") for task in self._cancelled if not task.done()]

    def line_of(self, key: str) -> str:
        """Return the line of a plugin's code at which the publisher of a shard waits; "" if it waits in other code."""
        task = self._tasks.get(key)
        is_ours = type(self._factory).__module__.partition(".")[0] == "recordpublisher"
        return "" if task is None or is_ours else line_in_user_code(task)

    def cancel(self) -> None:
        """Cancel every reader."""
        for task in self._tasks.values():
            self._cancel(task)

    async def stop(self) -> None:
        """Cancel every reader, and drop the records that were read but not emitted.

        If a publisher does not end within `flink.job.drain.timeout`, the job continues without it. Batches that it still produces are
        ignored.
        """
        self.cancel()
        await self._end_or_leave([*self._tasks.values(), *self._abandoned])
        self._tasks.clear()
        for entry in self._table:
            entry.end_run()
            self._intake.drop(entry)

    async def _end_or_leave(self, readers: Sequence[asyncio.Task[None]]) -> None:
        for task in await end_or_leave(readers, self._drain_seconds):
            log.error(
                "%s has not ended %g s after it was cancelled (flink.job.drain.timeout): the job continues without it. `run` of a "
                "publisher must end when its task is cancelled, and not catch CancelledError",
                self._words_of(task),
                self._drain_seconds,
            )
            self._cancelled.discard(task)
            self._abandoned.discard(task)

    def _words_of(self, task: asyncio.Task[None]) -> str:
        shard = task.get_name().removeprefix("read ")
        return f"the publisher of {type(self._factory).__name__} for {shard}, which waits at {waiting_line(task)},"

    def _cancel(self, task: asyncio.Task[None]) -> None:
        # A reader is cancelled only once, because a second cancellation would interrupt what it does to end properly.
        if task not in self._cancelled:
            self._cancelled.add(task)
            task.cancel()

    def _started(self, entry: ShardEntry) -> list[ShardEntry]:
        """Start the reader of a shard if the run still needs one. Return the shard in a list, or an empty list if it was abandoned."""
        if entry.needs_reader:
            self._start(entry)
        return [] if entry.reading.is_abandoned else [entry]

    def _start(self, entry: ShardEntry) -> None:
        parents = [self._table[key] for key in parent_keys(entry.shard) if key in self._table]
        self._gaps.start(entry, parents)
        with log_fields(**key_fields(entry.key)):
            task = asyncio.create_task(self._read(entry), name=f"read {entry.key}")
        self._tasks[entry.key] = task

        def on_done(ended: asyncio.Task[None]) -> None:
            if self._tasks.get(entry.key) is ended:
                del self._tasks[entry.key]
            was_told, is_abandoned = ended in self._cancelled, ended in self._abandoned
            self._cancelled.discard(ended)
            self._abandoned.discard(ended)
            if is_abandoned or ended in LEFT_BEHIND:
                return
            error = self._unasked_end(entry) if ended.cancelled() else ended.exception()
            if error is not None and not (ended.cancelled() and was_told):
                self._on_failed(entry, error)

        task.add_done_callback(on_done)

    def _unasked_end(self, entry: ShardEntry) -> PluginError:
        return PluginError(
            f"the publisher of {type(self._factory).__name__} for {entry.key} ended as if it had been stopped, but it was not. "
            "`run` may return CANCELLED, or raise CancelledError, only after its task was cancelled"
        )

    async def _read(self, entry: ShardEntry) -> None:
        try:
            result = await self._read_to_end(entry)
        except (Exception, asyncio.CancelledError):  # `on_done` knows whether it was asked for.
            raise
        except BaseException as error:
            name = f"the publisher of {type(self._factory).__name__} for {entry.key}"
            if (replaced := as_plugin_error(error, name)) is None:
                raise
            raise replaced from error
        if result is RunResult.CANCELLED:
            raise asyncio.CancelledError

    async def _read_to_end(self, entry: ShardEntry) -> RunResult:
        position = entry.state.starting_position(self._use_continuations)
        await self._gaps.check_start(entry, position)
        losses = 0  # since the last record
        while True:
            before = entry.progress.position
            try:
                return await self._read_from(entry, position)
            except DataLossError as error:
                losses = losses + 1 if entry.progress.position == before else 0
                # The oldest record may expire before it is read, so another position is tried a few times.
                is_stuck = error.resume is not None and losses > (0 if error.resume == position else MAX_LOSSES)
                if is_stuck and self._gaps.accepts_loss:
                    raise PluginError(
                        f"the publisher of {type(self._factory).__name__} for {entry.key} was created at the position that its "
                        f"DataLossError names as `resume`, and raised DataLossError again before any record: {error.loss}. `resume` must "
                        "be a position from which it can read"
                    ) from error
                if not self._gaps.accept(entry, error):
                    raise
                if error.resume is not None:
                    position = error.resume
                    continue
                if position.type is PositionType.TRIM_HORIZON and entry.progress.position == before:
                    # The shard does not even have an oldest record, so the whole shard is past retention. Its children are read if a
                    # listing shows them.
                    self._intake.end(entry, ())
                    return RunResult.COMPLETE
                position = StartingPosition.trim_horizon()

    async def _read_from(self, entry: ShardEntry, position: StartingPosition) -> RunResult:
        publisher = await make_publisher(self._factory, entry.shard, position, entry.metrics)
        publisher.set_seen(entry.progress.seen_ms)
        decorator = self._decorator_for(entry.shard, entry.metrics)
        if entry.state.watermark is not None:
            decorator.strategy.start_at(entry.state.watermark)
        consumer = ShardConsumer(
            publisher,
            decorator,
            self._intake.output_for(entry),
            self._factory.order_of,
            entry.state.position,
            entry.shard,
            keyless=self._factory.keyless,
            on_swallowed=partial(self._on_failed, entry),
            check_end=partial(self._ends.check, entry.shard),
            run_end=self._run_ends.get(entry.key),
        )
        try:
            return await consumer.run()
        except Exception as error:
            add_publisher_note(error, f"`{type(publisher).__name__}.run` for {entry.key}")
            raise


# ReadIntake queues the batches of the readers, accounts for their memory, and decides when the next read may start.


class ReadIntake:
    """Receives the batches of all readers, and queues them by shard."""

    def __init__(
        self,
        budget: MemoryBudget,
        clock: Clock,
        suspension: SuspensionDetector,
        on_children_found: Callable[[Sequence[Shard]], None],
        gaps: RetentionGaps,
    ) -> None:
        self._budget = budget
        self._clock = clock
        self._suspension = suspension
        self._on_children_found = on_children_found
        self._gaps = gaps
        self._pending_reads = PendingReads(budget)
        self._has_warned_of_clock = False

    @property
    def used_bytes(self) -> int:
        """Bytes of memory held by queued batches, or reserved for reads."""
        return self._budget.used

    def why_blocked(self, entry: ShardEntry) -> ReadBlock | None:
        """Return why a shard's next read waits, or None if it does not wait."""
        return self._budget.why_blocked(entry)

    def output_for(self, entry: ShardEntry) -> QueueingShardOutput:
        """Return the object through which the reader of one shard delivers its batches (a `ShardOutput`)."""
        return QueueingShardOutput(self, entry)

    def share_among(self, readers: int) -> None:
        """Divide the memory between `readers` shards from now on."""
        self._budget.share_among(readers)

    def reserve_first_read(self, entry: ShardEntry) -> int:
        """Reserve memory for a shard's first read. Return how many bytes it may read."""
        return self._budget.reserve_read(entry)

    async def put(self, entry: ShardEntry, batch: RecordBatch) -> int:
        """Queue a batch, then wait until the next read may start. Return how many bytes that read may bring.

        Raises: DataLossError if records before the batch expired unread, and the job does not accept that.
        """
        self._suspension.check()
        if self._gaps.needs_check(entry, batch):
            await self._gaps.check(entry, batch)
            # The factory may have caught the cancellation of this reader. Then the next reader may have queued the same records.
            if is_being_cancelled():
                raise asyncio.CancelledError
        if batch.after_gap:
            self._gaps.on_marked(entry)
        batch = self._gaps.marked(entry, batch)
        now_ms, now = self._clock.now_ms(), self._clock.monotonic()
        at = ReadMoment(now_ms, now, self._suspension.lost_seconds, self._gaps.read_ms(entry))
        self._gaps.on_read(entry, batch)
        if not self._has_warned_of_clock and (entry.progress.seen_ms or 0) - now_ms > CLOCK_BEHIND_MS:
            self._warn_of_clock(entry, now_ms)
        self._budget.settle_read(entry, 0 if batch.is_empty_read else batch.held_bytes)
        self._budget.release(entry.on_read(batch, at))
        del batch  # Without this, the local name would keep the batch's memory after it was emitted (P6).
        if entry.reading.needs_no_more:
            # The reader does not wait for another read, because there is none, and it may still have to report the shard's end.
            return 0
        read_bytes = self._budget.reserve_read(entry) or await self._pending_reads.wait(entry)
        self._gaps.on_request(entry)
        return read_bytes

    def _warn_of_clock(self, entry: ShardEntry, now_ms: int) -> None:
        self._has_warned_of_clock = True
        log.warning(
            "a record of %s arrived %s after the present time of this machine: its clock is slow, so lags and ages are shown too short by "
            "as much. Synchronise it, for example with NTP",
            entry.key,
            duration_words(((entry.progress.seen_ms or 0) - now_ms) / 1000),
            extra=log_extra(entry.key),
        )

    def end(self, entry: ShardEntry, children: Sequence[Shard]) -> None:
        """Mark a shard as read to its end. The shard has ended as soon as all of its queued records are emitted."""
        self._budget.settle_read(entry, 0)
        self._on_children_found(children)
        entry.end_of_reading(children)

    def on_emitted(self, entry: ShardEntry, freed_bytes: int) -> None:
        """Free `freed_bytes` of memory, because the shard has emitted records. Then start reads that wait for memory."""
        self._budget.release(freed_bytes)
        self._pending_reads.on_emitted(entry)

    def retry_pending_reads(self) -> None:
        """Start the waiting reads for which memory is free now. Called at each heartbeat."""
        self._pending_reads.retry_all()

    def cancel_read(self, entry: ShardEntry) -> None:
        """Release the memory that is reserved for the next read of a shard, because the shard is not read any further."""
        self._budget.cancel_read(entry)

    def drop(self, entry: ShardEntry) -> None:
        """Drop the queue of a shard, and the reservation for its next read."""
        self.cancel_read(entry)
        self._budget.release(entry.drop_unread())


class QueueingShardOutput:
    """The `ShardOutput` of one shard: it passes the batches of the shard's reader to `ReadIntake`."""

    def __init__(self, intake: ReadIntake, entry: ShardEntry) -> None:
        self._intake = intake
        self._entry = entry

    def first_read_budget(self) -> int:
        """Reserve memory for the shard's first read. Return how many bytes it may bring."""
        return self._intake.reserve_first_read(self._entry)

    def put(self, batch: RecordBatch) -> Coroutine[Any, Any, int]:
        """Queue a batch of the shard, then wait until the next read may start. Return how many bytes that read may bring."""
        return self._intake.put(self._entry, batch)

    def reach_run_end(self, first_past: str) -> None:
        """Note that the shard was read to the position at which the run ends in it. All records before that position are queued.

        `first_past`: the sequence number of the first record after that position.
        """
        self._entry.reach_run_end(first_past)

    def end(self, children: Sequence[Shard]) -> None:
        """Mark the shard as read to its end. `children`: its child shards, as far as its last read names them."""
        self._intake.end(self._entry, children)
