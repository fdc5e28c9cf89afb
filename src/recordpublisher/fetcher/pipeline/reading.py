"""Reads the shards of a job: a task for each shard, the batches that it queues, and the memory that they may hold."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from recordpublisher.consumer.shard_consumer import BatchDecorator, ShardConsumer, name_publisher
from recordpublisher.publishers.base import (
    DELETED_SECONDS,
    RecordPublisherFactory,
    RunResult,
    is_fault_of_plugin,
    make_publisher,
    own_shards,
)
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import DataLossError, PluginError, StreamNotFoundError
from recordpublisher.publishers.log_fields import about, key_fields, log_fields
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.user_code import (
    LEFT_BEHIND,
    as_plugin_error,
    describe_error,
    end_or_leave,
    line_in_user_code,
    waiting_line,
)

from ..settings import BudgetLimits
from ..shards.shard_entry import ShardEntry, ShardStage
from ..shards.shard_reading import ReadMoment
from ..shards.shard_table import ShardTable, parent_keys
from ..watermarks import IndexedMinHeap
from .process_suspension import SuspensionDetector
from .retention_gaps import RetentionGaps

if TYPE_CHECKING:
    from ..leases.heartbeat import WritePermission

    # imported only for its type, because a job that runs alone does not load the code of groups
    from ..leases.worker import Worker

log = logging.getLogger("recordpublisher.fetcher")


class ReadTasks:
    """Owns the reading tasks of a run."""

    def __init__(
        self,
        factory: RecordPublisherFactory,
        table: ShardTable,
        intake: ReadIntake,
        decorator_for: Callable[[Shard, ShardMetrics], BatchDecorator],
        use_continuations: bool,
        gaps: RetentionGaps,
        ends: ShardEnds,
        on_failed: Callable[[ShardEntry, BaseException], None],
        drain_seconds: float,
    ) -> None:
        self._factory = factory
        self._table = table
        self._intake = intake
        self._decorator_for = decorator_for
        self._use_continuations = use_continuations
        self._gaps = gaps
        self._ends = ends
        self._on_failed = on_failed
        self._drain_seconds = drain_seconds
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._abandoned: set[asyncio.Task[None]] = set()
        self._cancelled: set[asyncio.Task[None]] = set()
        """Readers of this run that were cancelled. A reader that ends as cancelled without being in this set has failed."""

    def start_ready(self, entries: Iterable[ShardEntry]) -> list[ShardEntry]:
        """Start a reader for each of these shards that may be read and has none. Return those shards.

        A shard that was stopped while it waited starts without a reader. Otherwise its stored position would say that
        it waits.
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
            if entry.key in self._tasks:  # otherwise its reader has failed
                self._cancel(self._tasks[entry.key])

    def abandon(self, entry: ShardEntry) -> None:
        """Read no more of a shard, and drop its queue, because another process has the shard, or will have it."""
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
        """The readers that have not ended although they were cancelled, with the line at which each of them waits."""
        return [self._words_of(task).rstrip(",") for task in self._cancelled if not task.done()]

    def line_of(self, key: str) -> str:
        """Return the line of a plugin's code at which the publisher of a shard waits; "" if it does not wait there."""
        task = self._tasks.get(key)
        is_ours = type(self._factory).__module__.partition(".")[0] == "recordpublisher"
        return "" if task is None or is_ours else line_in_user_code(task)

    def cancel(self) -> None:
        """Cancel every reader."""
        for task in self._tasks.values():
            self._cancel(task)

    async def stop(self) -> None:
        """Cancel every reader, and drop the records that were read but not emitted.

        The job continues without a publisher that does not end within `flink.job.drain.timeout`: its consumer accepts nothing
        more.
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
        # Cancel only once, because a second cancellation would cut off the work that the first one began.
        if task not in self._cancelled:
            self._cancelled.add(task)
            task.cancel()

    def _started(self, entry: ShardEntry) -> list[ShardEntry]:
        """Start the reader, unless the run needs no more of the shard, or the shard was abandoned."""
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
        while True:
            before = entry.progress.position
            try:
                return await self._read_from(entry, position)
            except DataLossError as error:
                if not self._gaps.accept(entry, error):
                    raise
                if position.type is PositionType.TRIM_HORIZON and entry.progress.position == before:
                    # The shard has not even an oldest record, so the whole shard is past retention. Its children, if any, are listed.
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
        )
        try:
            return await consumer.run()
        except Exception as error:
            name_publisher(error, f"`{type(publisher).__name__}.run` for {entry.key}")
            raise


# ReadIntake queues the batches of the readers, settles their memory, and decides when the next read may start.


class ReadIntake:
    """The receiving side of every shard reader."""

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

    @property
    def used_bytes(self) -> int:
        """Bytes queued or reserved, as held in memory."""
        return self._budget.used

    def why_blocked(self, entry: ShardEntry) -> ReadBlock | None:
        """Return why a shard's next read waits, or None if it does not wait."""
        return self._budget.why_blocked(entry)

    def output_for(self, entry: ShardEntry) -> ShardIntake:
        """Return the ShardOutput of one shard."""
        return ShardIntake(self, entry)

    def share_among(self, readers: int) -> None:
        """Set how many shards are read from now on, and share the memory."""
        self._budget.share_among(readers)

    def reserve_first_read(self, entry: ShardEntry) -> int:
        """Reserve memory for a shard's first read. Return how many bytes it may read."""
        return self._budget.reserve_read(entry)

    async def put(self, entry: ShardEntry, batch: RecordBatch) -> int:
        """Queue a batch, then wait until the next read may start. Return how many bytes that read may bring.

        Raises: DataLossError if records before the batch passed the retention unread, and the job does not accept that.
        """
        self._suspension.check()
        if self._gaps.needs_check(entry, batch):
            await self._gaps.check(entry, batch)
        batch = self._gaps.marked(entry, batch)
        now_ms, now = self._clock.now_ms(), self._clock.monotonic()
        at = ReadMoment(now_ms, now, self._suspension.lost_seconds, self._gaps.read_ms(entry))
        self._gaps.on_read(entry, batch)
        self._budget.settle_read(entry, 0 if batch.is_empty_read else batch.held_bytes)
        self._budget.release(entry.on_read(batch, at))
        del batch  # so that its memory is freed as soon as it is emitted (P6)
        if entry.reading.needs_no_more:
            # There is no further read. The reader does not wait, because it may still have to report the shard's end.
            return 0
        read_bytes = self._budget.reserve_read(entry) or await self._pending_reads.wait(entry)
        self._gaps.on_request(entry)
        return read_bytes

    def end(self, entry: ShardEntry, children: Sequence[Shard]) -> None:
        """Remember that a shard was read to its end. It has ended if nothing is queued, and drains otherwise."""
        self._budget.settle_read(entry, 0)
        self._on_children_found(children)
        entry.end_of_reading(children)

    def on_emitted(self, entry: ShardEntry, freed_bytes: int) -> None:
        """Start reads that wait for memory, because a shard has emitted and freed bytes."""
        self._budget.release(freed_bytes)
        self._pending_reads.on_emitted(entry)

    def retry_pending_reads(self) -> None:
        """Try every read that waits for memory. Called at each heartbeat."""
        self._pending_reads.retry_all()

    def drop(self, entry: ShardEntry) -> None:
        """Drop the queue of a shard, and the reservation for its next read."""
        self._budget.cancel_read(entry)
        self._budget.release(entry.drop_unread())


class ShardIntake:
    """The ShardOutput of one shard."""

    def __init__(self, intake: ReadIntake, entry: ShardEntry) -> None:
        self._intake = intake
        self._entry = entry

    def first_read_budget(self) -> int:
        """Reserve memory for the shard's first read. Return how many bytes it may bring."""
        return self._intake.reserve_first_read(self._entry)

    def put(self, batch: RecordBatch) -> Coroutine[Any, Any, int]:
        """Queue a batch of the shard, then wait until the next read may start. Return how many bytes that read may bring."""
        return self._intake.put(self._entry, batch)

    def end(self, children: Sequence[Shard]) -> None:
        """Remember that the shard was read to its end, with its child shards."""
        self._intake.end(self._entry, children)


# MemoryBudget reserves memory before a read and settles it after the read, so that queues stay bounded (P6).
#
# PendingReads holds the reads that wait for memory.

MIN_READ_BYTES = 64 * 1024


class MemoryBudget:
    """Owns how many bytes a worker has queued or reserved, and decides which shard may read next.

    - A shard with an empty queue may always read one batch, even if that exceeds the budget.
    - The rest of the budget goes to the shard with the lowest next watermark first.
    - A shard that alignment holds back gets none of the rest. Otherwise the shards ahead would use up the budget, and
      the shard that they wait for could never read.
    """

    def __init__(self, limits: BudgetLimits) -> None:
        self._limits = limits
        self.used = 0
        self._readers = 1

    def settle_read(self, entry: ShardEntry, arrived_bytes: int) -> None:
        """Replace the reservation of a read that returned by the bytes that arrived. After each empty read a shard reserves less."""
        self.used += arrived_bytes - entry.reservation.bytes
        entry.reservation.settle(arrived_bytes)

    def release(self, freed_bytes: int) -> None:
        """Release bytes that were emitted or dropped."""
        self.used -= freed_bytes

    def cancel_read(self, entry: ShardEntry) -> None:
        """Release the reservation of a shard's next read, which does not take place."""
        self.used -= entry.reservation.bytes
        entry.reservation.reserve(0)

    def share_among(self, readers: int) -> None:
        """Set how many shards share the budget from now on."""
        self._readers = max(readers, 1)

    def reserve_read(self, entry: ShardEntry) -> int:
        """Reserve memory for a shard's next read. Return how many bytes it may read, or 0 if it must wait.

        The reservation is twice the expected size of the read, so that the same memory is not granted to many reads. A
        shard with queued records or dead letters may read only what is reserved. A shard with an empty queue may read
        at least a fair share, because after a silence it may have much to read. A first read reserves its fair share,
        because a thousand shards may start at once.
        """
        queue, reservation = entry.reading.queue, entry.reservation
        has_queue = bool(queue.unhandled)
        if has_queue and not self._may_queue_more(entry):
            return 0
        limits = self._limits
        self.used -= reservation.bytes
        smallest = min(MIN_READ_BYTES, limits.worker_bytes)
        fair_share = min(limits.shard_bytes, max(limits.worker_bytes // self._readers, smallest))
        least = smallest if has_queue else 0
        wanted = fair_share if reservation.expected_bytes is None else max(2 * reservation.expected_bytes, least)
        free = min(limits.shard_bytes - has_queue * queue.bytes, limits.worker_bytes - self.used)
        reservation.reserve(max(0, min(wanted, free)))
        self.used += reservation.bytes
        return reservation.bytes if has_queue else max(reservation.bytes, fair_share)

    def why_blocked(self, entry: ShardEntry) -> ReadBlock | None:
        """Return why a shard's next read waits, by the limits of this budget; None if it does not wait."""
        return why_blocked(entry, self._limits)

    def is_over_shard_limits(self, entry: ShardEntry) -> bool:
        """Return whether a shard must emit before it may read more, however much memory is free."""
        return self.why_blocked(entry) in LIMITS_OF_THE_SHARD

    def _may_queue_more(self, entry: ShardEntry) -> bool:
        fits = self.used + (entry.reservation.expected_bytes or 0) <= self._limits.worker_bytes
        return fits and not self.is_over_shard_limits(entry)


BEFORE_ALL_WATERMARKS = float("-inf")


class PendingReads:
    """Owns which shards wait for memory before their next read.

    A shard over a limit of its own (held back, too much queued) is tried again when it has emitted. The others wait for
    memory of the worker and get it in the order of their next watermarks. So an emission costs the same with one shard
    held back as with a thousand.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._waiting: dict[str, ShardEntry] = {}
        self._waiting_for_memory = IndexedMinHeap()

    async def wait(self, entry: ShardEntry) -> int:
        """Wait until the shard's next read may start. Return how many bytes it may read."""
        grant = entry.reservation.request()
        self._waiting[entry.key] = entry
        self._update_order(entry)
        try:
            return await grant
        finally:
            entry.reservation.withdraw()
            self._remove(entry)

    def on_emitted(self, entry: ShardEntry) -> None:
        """Try the read of a shard that has emitted, then the reads of other shards."""
        if entry.key in self._waiting:
            self._try_to_grant(entry)
        self._grant_in_order()

    def retry_all(self) -> None:
        """Try every waiting read."""
        for entry in list(self._waiting.values()):
            self._update_order(entry)
        self._grant_in_order()
        for entry in list(self._waiting.values()):
            self._try_to_grant(entry)

    def _try_to_grant(self, entry: ShardEntry) -> None:
        if not entry.reservation.is_requested:
            return
        read_bytes = self._budget.reserve_read(entry)
        if read_bytes:
            entry.reservation.grant(read_bytes)
            self._remove(entry)
        else:
            self._update_order(entry)

    def _grant_in_order(self) -> None:
        """Grant free memory to the lowest next watermark first, until one read does not fit."""
        while (lowest := self._waiting_for_memory.lowest()) is not None:
            entry = self._waiting[lowest[1]]
            if not entry.reservation.is_requested:
                self._remove(entry)
                continue
            self._try_to_grant(entry)
            if entry.key in self._waiting:
                return

    def _update_order(self, entry: ShardEntry) -> None:
        watermark = entry.next_watermark
        waits_for_memory = not self._budget.is_over_shard_limits(entry)
        order = BEFORE_ALL_WATERMARKS if watermark is None else watermark
        self._waiting_for_memory.set(entry.key, order if waits_for_memory else None)

    def _remove(self, entry: ShardEntry) -> None:
        if self._waiting.get(entry.key) is entry:
            del self._waiting[entry.key]
            self._waiting_for_memory.set(entry.key, None)


# why_blocked finds why the next read of a shard waits, for memory, metrics, alarms and log.


class ReadBlock(Enum):
    """The condition that must end before the shard's next read."""

    PARENTS = "it waits for the end of its parents"
    ALIGNMENT = "held back by alignment"
    FULL_QUEUE = "its queue is full"
    MEMORY = "the memory of the worker is used up"


LIMITS_OF_THE_SHARD = (ReadBlock.ALIGNMENT, ReadBlock.FULL_QUEUE)
"""Reasons for which the shard must emit before its next read, however much memory is free (P6)."""


def why_blocked(entry: ShardEntry, limits: BudgetLimits) -> ReadBlock | None:
    """Return why the shard's next read waits. Return None if it may start, is in progress, or no reader is wanted.

    A shard with an empty queue may always be read.
    """
    queue = entry.reading.queue
    if queue.unhandled:
        if entry.status.is_held:
            return ReadBlock.ALIGNMENT
        expected_bytes = entry.reservation.expected_bytes or 0
        if queue.bytes + expected_bytes > limits.shard_bytes or queue.unhandled >= limits.shard_records:
            return ReadBlock.FULL_QUEUE
    if entry.stage is ShardStage.WAITING:
        return ReadBlock.PARENTS
    return ReadBlock.MEMORY if entry.reservation.is_requested else None


# CurrentWorker holds the worker of this process that runs now, or ran last. LeaseGate decides whether it may write
# now (E4).


class CurrentWorker:
    """Owns the current worker. A process has one worker after another (E1). WorkerLives sets it, and others only read it."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def become(self, worker: Worker) -> None:
        """Set the new worker."""
        self._worker = worker

    @property
    def worker(self) -> Worker | None:
        """The current worker, or None before the first one."""
        return self._worker

    @property
    def name(self) -> str | None:
        """Name of the worker of this process, or None if it has not joined."""
        return None if self._worker is None else self._worker.name

    @property
    def group_watermark(self) -> int | None:
        """The group's global watermark as far as the worker knows it (epoch ms)."""
        return None if self._worker is None else self._worker.group_watermark

    @property
    def group_maximum(self) -> int | None:
        """The highest watermark of a shard of the group, as far as the worker knows it (epoch ms)."""
        return None if self._worker is None else self._worker.group_maximum

    @property
    def permission(self) -> WritePermission | None:
        """The worker's permission to write to the sink, or None before the first worker."""
        return None if self._worker is None else self._worker.permission

    def on_suspension(self) -> None:
        """Withdraw the permission until a heartbeat is confirmed: during the suspension others may have replaced the worker."""
        if self._worker is not None:
            self._worker.permission.on_suspension()


class LeaseGate:
    """Owns the permission that was last found given, and the millisecond in which that was."""

    def __init__(self, current: CurrentWorker, suspension: SuspensionDetector, clock: Clock) -> None:
        self._current = current
        self._suspension = suspension
        self._clock = clock
        self._given: WritePermission | None = None
        self._given_ms = -1

    def may_write_now(self) -> bool:
        """Return whether a heartbeat was confirmed lately, and since the last suspension.

        A sink that sends from a queue may ask before each record. The answer is reused while the wall clock shows the
        same millisecond. The wall clock continues while a process is stopped or its machine sleeps, so after either the
        permission is checked again.
        """
        now_ms, permission = self._clock.now_ms(), self._current.permission
        if now_ms == self._given_ms and permission is self._given:
            return True
        self._suspension.check()
        if permission is None or not permission.is_given:
            return False
        self._given, self._given_ms = permission, now_ms
        return True


# ShardEnds checks the end of a shard that a publisher reports against the listing of the publisher's own source.

LISTINGS_OF_AN_END = 5
"""How many listings must show an ended shard as open, about one a second. A source may report an end before its listing does."""
LONGEST_PAUSE = 30.0
"""The most seconds between two listings that fail."""
discovery_log = logging.getLogger("recordpublisher.discovery")


class ListedAsGoneError(StreamNotFoundError):
    """The listing of a source says that the stream was deleted. An error of its publisher does not say that."""


class ShardEnds:
    """Owns the last listing of each stream that was made for an end. Shards that end together share it.

    A shard that is stored as ended is never read again. So the end of a shard whose publisher names no children must show in the listing
    of a source that lists its shards itself. The shards of Kinesis are not checked: the service names the children with the end (R4, F2).
    """

    def __init__(self, factory: RecordPublisherFactory, clock: Clock) -> None:
        self._factory = factory
        self._clock = clock
        self._listing = asyncio.Lock()
        self._open: dict[str, tuple[float, set[str]]] = {}
        """The last listing of each stream: when it began, and the keys of the shards that it shows as open and without children."""

    async def check(self, shard: Shard) -> None:
        """Check that a shard may have ended without children, and return. Failed listings are repeated until one succeeds.

        Raises: PluginError if the listing still shows it as open and without children, or is not a list of shards; ConfigurationError of
        the plugin; StreamNotFoundError if the stream was deleted.
        """
        factory = self._factory
        if shard.closed or shard.is_unlisted or factory.ends_open_shards or not factory.lists_shards:
            return
        shown = failed = 0
        missing_since: float | None = None
        while True:
            try:
                if shard.key not in await self._listed_open(shard.stream):
                    return
                shown, failed, missing_since = shown + 1, 0, None
            except Exception as error:  # The periodic listing ends the job if `discover` fails for long.
                if is_fault_of_plugin(error):
                    raise
                failed += 1
                if isinstance(error, StreamNotFoundError):
                    now = self._clock.monotonic()
                    missing_since = now if missing_since is None else missing_since
                    if now - missing_since >= DELETED_SECONDS:
                        raise ListedAsGoneError(error.stream) from error
                line = "%s was read to its end, and the listing that must confirm it failed; it is repeated: %s"
                discovery_log.warning(line, shard.key, describe_error(error), extra=about(shard.key))
            if shown == LISTINGS_OF_AN_END:
                name = type(factory).__name__
                raise PluginError(
                    f"the publisher of {name} for {shard.key} returned COMPLETE, and {name}.discover still lists the shard as open and "
                    "without children: later records would never be read. Let `discover` list it with closed=True once nothing more "
                    "comes, name its `child_shards` in the last batch, or let `run` wait for records instead of returning COMPLETE"
                )
            pause = min(LONGEST_PAUSE, 2.0**failed)
            await asyncio.sleep(random.uniform(0.5, 1.0) * pause)  # noqa: S311 (jitter)

    async def _listed_open(self, stream: str) -> set[str]:
        """Return the shards that a listing which begins from now on shows as open and without children."""
        asked = self._clock.monotonic()
        async with self._listing:
            began, found = self._open.get(stream, (asked, None))
            if found is None or began < asked:
                began = self._clock.monotonic()
                listed = await own_shards(self._factory, stream, None) or []
                parents = {key for shard in listed for key in parent_keys(shard)}
                found = {shard.key for shard in listed if not shard.closed} - parents
                self._open[stream] = began, found
            return found
