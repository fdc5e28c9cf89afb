"""`spark.read`: the reader, which plans a batch read on the driver, and the read of one task."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pyspark.sql.datasource import DataSourceReader, InputPartition

from recordpublisher.consumer.deserialization import Deserializer
from recordpublisher.consumer.end_position import EndPosition
from recordpublisher.fetcher.checkpoints.snapshot_format import RestoredState
from recordpublisher.fetcher.pipeline.bounded_runs import BoundedResult, Bounds, ShardOutcome
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError, DataLossError, StreamNotFoundError, TransientError
from recordpublisher.publishers.initial_position import check_end_time
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import (
    INITIAL_POSITION,
    INITIAL_TIMESTAMP,
    INITIAL_TIMESTAMP_FORMAT,
)
from recordpublisher.publishers.properties.times_and_sizes import iso_time
from recordpublisher.publishers.safe_text import few_of
from recordpublisher.publishers.shards import Shard, stream_name
from recordpublisher.publishers.skipped_records_log import log_left_out

from .arrow_rows import ArrowRows, ReusedMemory
from .options.spark_options import END_OPTION, ENDING_POSITION, SparkOptions
from .options.start_by_shard import START_OPTION, STARTS
from .outages import OutageWatch
from .python_worker import errors_as_one_sentence, log_to_stderr, worker_loop
from .read_range import ReadRange
from .row_columns import RowColumns
from .source.task_plans import MAX_DOUBLINGS, count_tasks_of_batch_read

if TYPE_CHECKING:
    from ..runtime.bounded_reader import BoundedReader
    from .source.kinesis_service import KinesisService


class KinesisBatchReader(DataSourceReader):  # type: ignore[misc]
    """Plans the tasks of a batch read on the driver, and reads the rows of one of them in each task.

    Spark makes a reader for each action, and all actions must return the same rows. Therefore only the options and `positions` decide what
    is read.
    """

    def __init__(self, options: SparkOptions, positions: ReadRange, schema: Any) -> None:
        self._options = options
        self._positions = positions
        self._schema = schema
        RowColumns.chosen(schema, options.properties)  # Called for its errors, before anything is read.

    @errors_as_one_sentence()
    def partitions(self) -> list[RangePartition]:
        """Divide the shards among tasks, and return the partition that each task reads.

        Raises: ConfigurationError if a position is invalid; StreamNotFoundError if there is no such stream; DataLossError if the start is
        past retention; OutageError if a service was unreachable for too long.
        """
        from .source.kinesis_service import KinesisService

        log_to_stderr()
        self._options.warnings.tell()
        options, service = self._options, KinesisService(self._options)
        try:
            outages = OutageWatch(options.max_outage_ms, is_batch_read=True)
            parts, settles_in = outages.wait_out(
                lambda: shard_ranges(options.streams, self._positions, service, options.accepts_loss)
            )
        finally:
            service.close()
        may_miss_shards = settles_in > 0 and self._positions.shards is None
        planned = frozenset(part.shard.key for part in parts) if may_miss_shards else None
        tasks = shared_among(count_tasks_of_batch_read(len(parts), options), parts)
        return [RangePartition(each, settles_in, None if number else planned) for number, each in enumerate(tasks)]

    def read(self, partition: RangePartition) -> Iterator[Any]:
        """Yield the rows of one task as Arrow batches."""
        options = self._options
        job = ("columns", self._schema.json(), *sorted(_without_positions(options.properties).items()))
        bounds = Bounds(
            max_time=options.window_ms / 1000,
            max_records=options.max_task_records,
            max_bytes=options.max_bytes,
            stop_at_tip=True,
        )
        with errors_as_one_sentence():
            columns = worker_loop().cached(job, lambda: RowColumns.chosen(self._schema, options.properties))
            reader = shared_reader(options, columns.values)
            planned = partition.planned
            yield from RangeRead(
                partition.parts,
                background_reads(reader),
                bounds,
                options.max_outage_ms,
                options.accepts_loss,
                columns,
                ReusedMemory.pair_of_process(),
                settles_in=partition.settles_in,
                later=None
                if planned is None
                else lambda: later_ranges(options.streams, self._positions, planned, shard_lists(reader)),
            ).rows()


class RangePartition(InputPartition):  # type: ignore[misc] # pyspark is not typed here
    """The parts of shards that one task reads, in the form in which Spark sends them to the task.

    - `settles_in`: seconds until every record before the end can be read. Only a read after that time shows that a shard has no more
      records before the end.
    - `planned`: the `Shard.key` of every shard that the tasks read. Set only in the task that looks for shards created after the plan.
    """

    def __init__(
        self, parts: tuple[ShardRange, ...], settles_in: float = 0.0, planned: frozenset[str] | None = None
    ) -> None:
        super().__init__(", ".join(part.shard.key for part in parts))
        self.parts = parts
        self.settles_in = settles_in
        self.planned = planned


LOG = logging.getLogger("recordpublisher.spark")
SETTLED_MS = 1_000
"""When the service's clock has passed the end of a read by this time, all records before the end can be read (ms).

A record may become readable a moment after its arrival.
"""
LONGEST_WAIT_MS = 10_000
"""Longest time to wait until the service's clock has passed the end of a read (ms). The end NOW is later if the driver's clock is ahead."""


@dataclass(frozen=True, slots=True)
class ShardRange:
    """The part of a shard that a task reads. It includes the start and excludes the end."""

    shard: Shard
    start: StartingPosition
    end: EndPosition


def shard_ranges(
    streams: tuple[str, ...],
    positions: ReadRange,
    service: KinesisService,
    accepts_loss: bool,
) -> tuple[list[ShardRange], float]:
    """Return the parts of shards to read, and after how many seconds every record before the end can be read.

    All reads after that time find the same records, because later records are after the end. Until that time, shards with records before
    the end may still be created (`later_ranges`).

    Raises: ConfigurationError if an end is in the future, or if a shard does not exist; DataLossError if the start is past retention,
    unless `accepts_loss`.
    """
    ranges, settles_in = [], 0.0
    for stream in streams:
        _check_retained(stream, positions.starts.default, service, accepts_loss)
        settles_in = max(settles_in, _settles_in(positions.end.arrival_ms, service.server_time_ms(stream)))
        # A listing may lack a parent for a moment. Its records would be missing without an error.
        listed, _ = service.list_restored((stream_name(stream),), RestoredState())
        shards = list(listed)
        _check_exist(stream, shards, positions)
        chosen = [shard for shard in shards if positions.shards is None or shard.shard_id in positions.shards]
        ranges += [ShardRange(shard, *positions.of(shard)) for shard in chosen]
    return ranges, settles_in


def later_ranges(
    streams: tuple[str, ...],
    positions: ReadRange,
    planned: frozenset[str],
    list_shards: Callable[[str], Sequence[Shard]],
) -> list[ShardRange]:
    """Return the parts to read of shards that were created after the plan, and are therefore not in `planned` (by `Shard.key`).

    Call it when every record before the end can be read.
    """
    listed = [shard for stream in streams for shard in list_shards(stream)]
    return [ShardRange(shard, *positions.of(shard)) for shard in listed if shard.key not in planned]


def shared_among(tasks: int, parts: Sequence[ShardRange]) -> list[tuple[ShardRange, ...]]:
    """Divide the parts among `tasks` tasks. Neighbours in the listing, often a parent and its child, go to different tasks."""
    return [tuple(parts[number::tasks]) for number in range(min(tasks, len(parts)))]


def _check_exist(stream: str, shards: list[Shard], positions: ReadRange) -> None:
    missing = (positions.shards or frozenset()) - {shard.shard_id for shard in shards}
    if missing:
        option = START_OPTION if positions.starts.by_shard else END_OPTION
        valid = few_of([shard.shard_id for shard in shards])
        raise ConfigurationError(option, few_of(sorted(missing)), valid, reason=f"{stream} has no such shard")


def _check_retained(stream: str, start: StartingPosition, service: KinesisService, accepts_loss: bool) -> None:
    if start.type is not PositionType.AT_TIMESTAMP or start.timestamp_ms is None:
        return
    oldest = service.oldest_retained_ms(stream)
    if oldest is None or oldest <= start.timestamp_ms:
        return
    lost = f"the read of {stream} starts at {iso_time(start.timestamp_ms)}, and records before {iso_time(oldest)} are past its retention"
    if not accepts_loss:
        raise DataLossError(lost, "Start later, or set flink.state.dataloss=CONTINUE (failOnDataLoss=false)")
    LOG.warning("%s; the read continues because flink.state.dataloss=CONTINUE", lost)


def _settles_in(end_ms: int, now_ms: int) -> float:
    """Return the seconds until every record that arrives before the end can be read, if the service's clock is at `now_ms`.

    The service reports whole seconds, so its clock may be up to a second ahead of `now_ms`, and the wait up to a second too long.

    Raises: ConfigurationError if the end is too far in the future.
    """
    if end_ms - now_ms > LONGEST_WAIT_MS:
        told = "the service's clock (NOW is by the driver's)"
        check_end_time(END_OPTION, iso_time(end_ms), end_ms + SETTLED_MS, now_ms=now_ms, clock=told)
    return max(0, end_ms + SETTLED_MS - now_ms) / 1000


@dataclass(slots=True)
class _Progress:
    """How far the part of one shard was read. A window is one read of all parts that are not finished.

    - `empty_windows`: number of windows in a row that found no record of the shard.
    - `is_first`: whether no window has found a record so far.
    - `at_tip`: whether the last window ended at the shard's tip (its newest record).
    """

    part: ShardRange
    state: ShardState
    empty_windows: int = 0
    is_first: bool = True
    at_tip: bool = False

    @classmethod
    def begin(cls, parts: Iterable[ShardRange]) -> list[_Progress]:
        """Return the progress of each part before its first window."""
        return [cls(part, ShardState(part.start)) for part in parts]


class _Window(NamedTuple):
    """A window that is being read. `began` is the time at which its read began (seconds of the monotonic clock)."""

    rows: ArrowRows
    reading: Future[BoundedResult]
    began: float


@dataclass(slots=True)
class RangeRead:
    """Reads the parts of one task in windows. Each part is read to its end position, to the end of the shard, or to the tip.

    A window is one read of all parts that are not finished. Spark handles the rows of a window while the next window is read. Each of these
    two windows holds at most half of `bounds` plus the rest of one response, whatever the number of shards. The rows of one shard keep
    their order; rows of several shards mix.

    - `settles_in`: seconds after which every record before the end can be read. Only a window that began after that time can finish a
      shard at its tip.
    - `later`: returns the parts of shards that were created after the plan and before that time. This task reads them too.
    """

    parts: Sequence[ShardRange]
    begin: BeginRead
    bounds: Bounds
    max_outage_ms: int
    accepts_loss: bool = False
    columns: RowColumns = field(default_factory=RowColumns)
    memories: Sequence[ReusedMemory] = field(default_factory=lambda: (ReusedMemory(), ReusedMemory()))
    clock: Clock = SystemClock()  # noqa: RUF009 - has no state
    sleep: Callable[[float], None] = time.sleep
    settles_in: float = 0.0
    later: Callable[[], Sequence[ShardRange]] | None = None
    _outages: OutageWatch = field(init=False)
    _settled_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._outages = OutageWatch(self.max_outage_ms, self.clock)
        self._settled_at = self.clock.monotonic() + self.settles_in

    def rows(self) -> Iterator[Any]:
        """Yield the rows as Arrow batches.

        Raises: ConfigurationError if the end is after the tip; DataLossError if the start is past retention; StreamNotFoundError if the
        stream was deleted; OutageError if a service was unreachable for too long. Errors that are not outages are raised at once.
        """
        left, memories, later = _Progress.begin(self.parts), cycle(self.memories), self.later
        window: _Window | None = self._begin(left, next(memories))
        try:
            while window is not None:
                left, rows = self._left_after(left, window), window.rows
                window = self._begin(left, next(memories)) if self._finds_more(left) else None
                yield from rows.drain()
                if window is None and (left or later):
                    self.sleep(max(0.0, self._settled_at - self.clock.monotonic()))
                    left += _Progress.begin(self._outages.wait_out(later, self.sleep) if later else ())
                    later, window = None, self._begin(left, next(memories)) if left else None
        finally:
            if window is not None:
                window.reading.cancel()

    def _finds_more(self, left: Sequence[_Progress]) -> bool:
        """Return whether the next window may begin at once. It must wait if all shards are at their tips before `settles_in` is over."""
        return bool(left) and (self._is_settled(self.clock.monotonic()) or not all(each.at_tip for each in left))

    def _is_settled(self, at: float) -> bool:
        return at >= self._settled_at

    def _begin(self, left: Sequence[_Progress], memory: ReusedMemory) -> _Window:
        rows = ArrowRows(self.columns, memory=memory)
        began, states = self.clock.monotonic(), {each.part.shard: each.state for each in left}
        return _Window(rows, self.begin(states, self._window(left), rows), began)

    def _window(self, left: Sequence[_Progress]) -> Bounds:
        """Return the bounds of the next window. Its time doubles after each window that found nothing.

        After a window without records, the next one starts at the same position and gets the same empty responses again. A longer window
        gets past them.
        """
        usual, doublings = self.bounds.max_time, min(MAX_DOUBLINGS, max(each.empty_windows for each in left))
        return replace(
            self.bounds,
            max_time=usual and usual * (1 << doublings),
            max_records=_half(self.bounds.max_records),
            max_bytes=_half(self.bounds.max_bytes),
            ends={each.part.shard.key: each.part.end for each in left},
        )

    def _left_after(self, left: Sequence[_Progress], window: _Window) -> list[_Progress]:
        """Wait for the end of a window, and return the parts that were not read to their ends."""
        outcomes = window.reading.result().shards
        log_left_out(LOG, "a batch read", {key: outcome.seen.skipped for key, outcome in outcomes.items()})
        return [each for each in left if not self._is_done(each, window, outcomes)]

    def _is_done(self, each: _Progress, window: _Window, outcomes: Mapping[str, ShardOutcome]) -> bool:
        shard, rows = each.part.shard, window.rows
        outcome = outcomes.get(shard.key)
        if outcome is None:
            raise StreamNotFoundError(shard.stream)
        each.empty_windows = 0 if outcome.records else each.empty_windows + 1
        self._note_outage(outcome)
        each.state, each.at_tip = outcome.state, outcome.seen.at_tip
        is_complete = outcome.first_past_end is not None or outcome.state.ended
        is_done = is_complete or (each.at_tip and self._is_settled(window.began))
        if each.is_first and (outcome.records or outcome.seen.skipped or is_done):
            self._check_first(each.part, rows, outcome)
            each.is_first = False
        if is_done and not is_complete:
            self._check_end(each.part, each.state)
        return is_done

    def _check_end(self, part: ShardRange, state: ShardState) -> None:
        """Refuse an end after the tip of an open shard, because a later action would find more rows before that end.

        An end that is a time has passed, so no more rows can arrive before it.

        - `state`: the state of the shard at its tip. Its position is at or after the end even if the record at the end was read and
          skipped (`flink.deserializer.error`).

        Raises: ConfigurationError if the end is a record that does not exist yet.
        """
        end = part.end.sequence
        if end is not None and (state.position is None or int(state.position.sequence) < end):
            reason = f"{part.shard.key} has no record at or after it yet"
            raise ConfigurationError(
                END_OPTION, str(end), "the sequence number of an existing record, a time, or NOW", reason=reason
            )

    def _note_outage(self, outcome: ShardOutcome) -> None:
        key = outcome.shard.key
        if outcome.seen.failure is not None and not outcome.records:
            self._outages.on_failure(outcome.seen.failure, key)
        else:
            self._outages.on_success(key)

    def _check_first(self, part: ShardRange, rows: ArrowRows, outcome: ShardOutcome) -> None:
        """Check that the read found the record at which it starts. That record may be after the end, or may have been skipped.

        If that record is past retention, the service starts at the oldest record that is left. Raises: DataLossError in that case, unless
        the job accepts it.
        """
        asked, key = part.start.sequence_number, part.shard.key
        # If the window has left out a record, the fetcher of the window has noticed whether records are past retention.
        found = rows.first[key][0] if key in rows.first else outcome.first_past_end
        if asked is None or outcome.seen.skipped or found == asked:
            return
        lost = (
            f"{key} does not have the record {asked}, at which the read starts; it may be past the stream's retention"
        )
        if not self.accepts_loss:
            raise DataLossError(lost, "Set flink.state.dataloss=CONTINUE to start at the oldest record")
        LOG.warning("%s; the read continues because flink.state.dataloss=CONTINUE", lost)


def _half(limit: int | None) -> int | None:
    return None if limit is None else max(1, limit // 2)


PUBLISHER = "POLLING"
"""Batch reads always poll, because a fan-out subscription would be lost between two windows."""


class BeginRead(Protocol):
    """Begins to read shards within bounds into `sink`, and does not wait for the end."""

    def __call__(self, shards: Mapping[Shard, ShardState], bounds: Bounds, sink: ArrowRows) -> Future[BoundedResult]:
        """Return a future with the position of each shard at the end. Cancel it to end the read."""


_POSITIONS = (INITIAL_POSITION, INITIAL_TIMESTAMP, INITIAL_TIMESTAMP_FORMAT, STARTS, ENDING_POSITION)


def _without_positions(properties: Properties) -> Properties:
    """Return the properties without the start and the end of the read.

    The reader does not depend on these two, so an application that reads another part of a stream every minute uses one reader.
    """
    return properties.merged(dict.fromkeys((each.key for each in _POSITIONS), None))


def shared_reader(options: SparkOptions, values: Deserializer[Any] | None = None) -> BoundedReader:
    """Return the reader that this process uses for the options, whatever their start and end. Its clients stay open from task to task.

    - `values`: a deserializer that was made from the properties of `options` before; None to make it here.

    Call this function only in the thread that runs Spark's tasks.
    """
    # Imported here because the process that plans a batch read does not need a fetcher.
    from ..runtime.bounded_reader import BoundedReader
    from .efo_consumers import task_properties
    from .source.task_read import with_endless_retries

    properties = with_endless_retries(task_properties(_without_positions(options.properties), {}))
    job = tuple(sorted(properties.items()))
    return worker_loop().cached((PUBLISHER, job), lambda: BoundedReader(properties, PUBLISHER, deserializer=values))


def background_reads(reader: BoundedReader) -> BeginRead:
    """Return a function that begins reads on the event loop of this process.

    Call `background_reads`, and the function that it returns, only in the thread that runs Spark's tasks.
    """
    loop = worker_loop()

    def begin(shards: Mapping[Shard, ShardState], bounds: Bounds, sink: ArrowRows) -> Future[BoundedResult]:
        future = loop.submit(reader.read(shards, sink, bounds))
        future.add_done_callback(lambda _: loop.freeze_heap())
        return future

    return begin


LISTING_SECONDS = 10.0
"""After this time a listing counts as failed (seconds). The reader itself retries without a limit, because a window ends its retries."""


def shard_lists(reader: BoundedReader) -> Callable[[str], Sequence[Shard]]:
    """Return a function that lists the shards of a stream. Call that function only in the thread that runs Spark's tasks.

    The function raises TransientError if the call takes too long, and the errors of `BoundedReader.list_shards`.
    """

    async def listed(stream: str) -> Sequence[Shard]:
        try:
            async with asyncio.timeout(LISTING_SECONDS):
                return await reader.list_shards(stream)
        except TimeoutError as error:
            raise TransientError("ListShards", "Timeout", f"no answer within {LISTING_SECONDS:g} s") from error

    return lambda stream: worker_loop().run(listed(stream))
