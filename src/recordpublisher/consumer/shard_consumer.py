"""Runs the publisher of one shard, adds values, event times and watermarks to its batches, and passes them to an output."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise, takewhile
from operator import lt
from typing import Any, Protocol

import msgspec

from recordpublisher.publishers.base import RecordPublisher, RecordPublisherFactory, RunResult
from recordpublisher.publishers.errors import (
    SERVICE_AWAY,
    ConfigurationError,
    DeserializationError,
    PluginError,
    causes_of,
)
from recordpublisher.publishers.positions import LONGEST_SEQUENCE, WHOLE_RECORD, SequenceNumber
from recordpublisher.publishers.records import PoisonedRecord, RecordBatch, RecordColumns, SkippedRecords, UserRecord
from recordpublisher.publishers.user_code import add_note, describe_error, is_raised_in_user_code, log_user_error

from ..publishers.properties.job_properties import OnBadRecord
from ..publishers.safe_text import counted, repr_of
from ..publishers.shard_metrics import ShardMetrics
from ..publishers.shards import Shard
from ..publishers.skipped_records_log import DEAD_LETTER, SkippedRecordsLog, how_to_continue
from .deserialization import (
    Decompressor,
    Deserializer,
    PreparedDeserializer,
    call_for_items,
    prepare_values,
    values_of,
)
from .end_position import RunEnd, RunEndCut
from .event_time import ImplausibleTimes, TimestampAssigner, check_arrivals, check_times
from .watermark_strategies import WatermarkStrategy, cap_future_event_times

EMPTY_RUN_SECONDS = 0.1
"""The pause after a run of the publisher without a batch (seconds). A publisher that returns at once would otherwise use a whole CPU."""

WAITING_RUN_SECONDS = 1.0
"""A run of the publisher that takes longer than this has waited for records (seconds)."""
EMPTY_RUNS_SECONDS = 60.0
"""If all runs of a publisher return at once without a batch for this time, a log line says so (seconds)."""

PART_BYTES = 4 * 2**20
"""How many bytes of payloads are decompressed at a time. This blocks the event loop for about 20 ms."""

log = logging.getLogger("recordpublisher.consumer")

Decorate = Callable[[RecordBatch], RecordBatch]

_TYPES_IN_BATCH: dict[str, tuple[type, ...]] = {
    "millis_behind_latest": (int, type(None)),
    "read_position": (SequenceNumber, type(None)),
    "child_shards": (tuple, list),
    "raw_count": (int,),
    "raw_bytes": (int,),
}

_TYPES_IN_RECORD: dict[str, tuple[type, ...]] = {
    "data": (bytes,),
    "sequence_number": (str,),
    "partition_key": (str,),
    "sub_sequence_number": (int,),
}

_ORDERED_BATCHES = 3
"""Number of batches, at the beginning of a shard, in which the plugin's `order_of` compares all records. Each record costs a call."""

KEYLESS_REMEDY = ", unless the factory has `keyless = True`: then records need no partition key"

_TYPES_OF_KEYLESS = _TYPES_IN_RECORD | {"partition_key": (str, type(None))}

_UNORDERED_PUBLISHERS: set[str] = set()
"""The publishers for which the log already says that their positions have no order. Each gets one line for all its shards."""


_BUSY_PUBLISHERS: set[str] = set()
"""The publishers for which the log already says that their runs return at once without a batch."""


class ShardConsumer:
    """Reads one shard to its end by running its publisher, and passes each batch to a `ShardOutput`.

    - `order_of`: a sort key for sequence numbers.
    - `begins_after`: the position after which the publisher resumes, or None if it does not resume.
    - `shard`: the shard that is read. If it is None, batches of any shard are accepted.
    - `keyless`: whether records may have no partition key.
    - `on_swallowed`: called with an error that the publisher has caught and not raised again.
    - `check_end`: raises an error if the shard may not end without children. It may wait.
    - `run_end`: where the run ends in this shard, or None if that is not known in advance. Later records are not decoded.
    """

    def __init__(
        self,
        publisher: RecordPublisher,
        decorator: BatchDecorator,
        output: ShardOutput,
        order_of: Callable[[str], Any] = int,
        begins_after: SequenceNumber | None = None,
        shard: Shard | None = None,
        keyless: bool = False,
        on_swallowed: Callable[[PluginError], None] = lambda error: None,
        check_end: Callable[[], Awaitable[None]] | None = None,
        run_end: RunEnd | None = None,
    ) -> None:
        self._positions = AdvancingPositions(type(publisher).__name__, order_of, begins_after)
        self._keyless, self._on_swallowed, self._check_end = keyless, on_swallowed, check_end
        self._cut = RunEndCut(run_end)
        self._error: Exception | None = None
        """The error that this class has raised in a call of the publisher."""
        self._reader: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._publisher = publisher
        self._shard = shard
        self._decorator = decorator
        self._output = output
        self._children: Sequence[Shard] = ()
        self._call: Coroutine[Any, Any, SequenceNumber | None] | None = None

    async def run(self) -> RunResult:
        """Read until the shard's end (COMPLETE) or until the publisher is cancelled.

        Raises: PluginError if the publisher breaks its contract; the errors of the publisher, the output and `check_end`.
        """
        self._loop, self._reader = asyncio.get_running_loop(), asyncio.current_task()
        self._publisher.set_read_budget(self._output.first_read_budget())
        result, began = RunResult.INCOMPLETE, self._loop.time()
        while result is RunResult.INCOMPLETE:
            before, called = self._call, self._loop.time()
            result = await self._publisher.run_observed(self._consume)
            if self._is_cancelled:
                raise asyncio.CancelledError
            self._check_last_call()
            if result is RunResult.INCOMPLETE and self._call is before:
                now = self._loop.time()
                began = now if now - called > WAITING_RUN_SECONDS else began
                if now - began >= EMPTY_RUNS_SECONDS:
                    self._tell_empty_runs(now - began)
                await asyncio.sleep(EMPTY_RUN_SECONDS)
            else:
                began = self._loop.time()
        if not isinstance(result, RunResult):
            raise PluginError(
                f"{type(self._publisher).__name__}.run returned {repr_of(result)}: return RunResult.COMPLETE if the shard was read "
                "to its end, else RunResult.INCOMPLETE"
            )
        if result is RunResult.COMPLETE:
            if self._check_end is not None and not self._children:
                await self._check_end()
                # A plugin may have caught the cancellation. The queue may have been dropped since, and its records are not written.
                if self._is_cancelled:
                    raise asyncio.CancelledError
            self._end()
        return result

    def _end(self) -> None:
        self._output.end(self._children)

    def _tell_empty_runs(self, seconds: float) -> None:
        name = type(self._publisher).__name__
        if name not in _BUSY_PUBLISHERS:
            _BUSY_PUBLISHERS.add(name)
            shard = "" if self._shard is None else f" for {self._shard.key}"
            log.warning(
                "`%s.run`%s has only returned INCOMPLETE at once, without a batch, for %.0f s: wait in `run` for records, or return "
                "RunResult.COMPLETE at the end of the shard",
                name,
                shard,
                seconds,
            )

    @property
    def _is_cancelled(self) -> bool:
        """Whether the reader was cancelled, even if the publisher has caught the CancelledError."""
        return self._reader is not None and self._reader.cancelling() > 0

    def _consume(self, batch: RecordBatch) -> Coroutine[Any, Any, SequenceNumber | None]:
        if self._is_cancelled:
            self._call = self._refuse(asyncio.CancelledError())
        elif self._error is not None:
            swallowed = self._swallowed_error(self._error)
            # Reported by a callback, because a publisher that catches every error would also catch one that is raised here.
            self._on_swallowed(swallowed)
            self._call = self._refuse(swallowed)
        else:
            self._check_last_call()
            self._call = self._accept(batch)
        return self._call

    async def _refuse(self, error: BaseException) -> SequenceNumber | None:
        """Raise the error after a pause. The pause lets other tasks run even if the publisher catches the error again and again."""
        await asyncio.sleep(EMPTY_RUN_SECONDS)
        raise error

    def _swallowed_error(self, error: Exception) -> PluginError:
        swallowed = PluginError(
            f"{type(self._publisher).__name__}.run has caught an error of the consumer and not raised it again: "
            f"{describe_error(error)}. `run` must not catch errors of the consumer"
        )
        swallowed.__cause__ = error
        return swallowed

    def _check_last_call(self) -> None:
        """Check that the publisher has awaited the last call of the consumer, and has not caught an error of that call.

        Raises: PluginError if the call was not awaited: its batch would be lost, or the publisher would read on without back-pressure.
        """
        if self._error is not None:
            raise self._swallowed_error(self._error)
        if self._call is None:
            return
        name = type(self._publisher).__name__
        match inspect.getcoroutinestate(self._call):
            case inspect.CORO_CREATED:
                self._call.close()  # Closed, because Python would also warn of a coroutine that never ran.
                raise PluginError(f"{name} does not await the consumer: write `await consumer(batch)`")
            case inspect.CORO_SUSPENDED | inspect.CORO_RUNNING:
                raise PluginError(
                    f"{name}.run continued before the consumer had returned, so it reads without back-pressure: write "
                    "`await consumer(batch)` before it reads more, calls the consumer again, or returns"
                )

    async def _accept(self, batch: RecordBatch) -> SequenceNumber | None:
        taking = self._take(batch)
        del batch  # `_take` then has the only reference to the batch, and can free it (P6).
        try:
            return await taking
        except Exception as error:
            self._error = error
            raise

    async def _take(self, batch: RecordBatch) -> SequenceNumber | None:
        name = type(self._publisher).__name__
        if asyncio.get_running_loop() is not self._loop:
            raise PluginError(
                f"{name} calls the consumer in another event loop or thread: write `await consumer(batch)` in `run`"
            )
        # 1. Refuse a batch that breaks the contract of publishers, while the message can still name the publisher.
        if not isinstance(batch, RecordBatch):
            raise PluginError(f"{name} gave {repr_of(batch)}: the consumer must be called with a RecordBatch")
        shard = self._shard
        if not isinstance(batch.shard, Shard):
            raise PluginError(f"{name} gave a batch of {repr_of(batch.shard, 60)}: give it the Shard that `create` got")
        if shard is not None and batch.shard is not shard and batch.shard.key != shard.key:
            raise PluginError(
                f"{name} gave a batch of {batch.shard.key}, but was created to read {shard.key}: give the batch the shard that "
                "`create` got"
            )
        check_types(name, batch, self._keyless)
        if len(batch):
            check_arrivals(name, batch)
            if not batch.raw_bytes:  # Memory is limited by this number (P6), which a plugin may leave out.
                batch = replace(batch, raw_bytes=sum(map(len, batch.data)))
        # 2. Keep the child shards until the shard ends, because they may come before the publisher's last batch.
        self._children = batch.child_shards or self._children
        position = batch.read_position
        self._positions.check(batch)
        # 3. Add values, event times and watermarks, and queue the batch in parts. The output returns how many bytes the next read may
        # bring.
        batch = self._cut.before_end(batch)
        await self._decorator.prepare(batch)
        parts = self._decorator.decorated_parts(batch)
        del batch  # While the next read waits for memory, records that were emitted must be freed (P6).
        while (part := next(parts, None)) is not None:
            # A plugin that was awaited may have caught the cancellation. Another reader may have begun in the meantime, so the batch would
            # be written twice.
            if self._is_cancelled:
                raise asyncio.CancelledError
            putting = self._output.put(part)
            del part
            self._publisher.set_read_budget(await putting)
        if self._cut.first_past is not None:
            self._output.reach_run_end(self._cut.first_past)
        # 4. Let the emitter and the other shards run, because a publisher that always has data would never wait.
        await asyncio.sleep(0)
        return position


class ShardOutput(Protocol):
    """Receives the batches of one shard, in order."""

    def first_read_budget(self) -> int:
        """Reserve memory for the first read. Return how many bytes of memory it may use."""

    async def put(self, batch: RecordBatch) -> int:
        """Queue a batch, then wait until the next read may start. Return how many bytes of memory that read may need."""

    def reach_run_end(self, first_past: str) -> None:
        """Note that the shard was read to the end of the run (`RunEnd`), and that all records before it are queued.

        `first_past`: the sequence number of the first record after the end.
        """

    def end(self, children: Sequence[Shard]) -> None:
        """Mark the shard as read to its end. The sink may not have received all of its batches yet."""


def add_publisher_note(error: Exception, what: str) -> None:
    """Add a note to an error that a plugin's code has raised. The note says that `what` failed.

    An error raised by `ShardConsumer` gets no note, because its message already names the publisher.
    """
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    # Errors in these two methods come from the deserializer, the fetcher or the sink, and not from the publisher.
    is_of_others = ShardConsumer._accept.__code__ in frames or ShardConsumer._end.__code__ in frames
    if not is_of_others and is_raised_in_user_code(error, or_installed=True):
        add_note(error, f"{what} failed")


class BatchDecorator:
    """Adds values, event times and watermarks to the batches of one shard.

    If there is a decompressor, the payloads are decompressed first. Bad (poisoned) records are left out, or end the job. The shard's
    metrics count event times that are too far after their arrival to move the watermark.
    """

    def __init__(
        self,
        deserializer: Deserializer,
        timestamp_assigner: TimestampAssigner,
        strategy: WatermarkStrategy,
        metrics: ShardMetrics,
        *,
        on_poison: OnBadRecord,
        future_limit_ms: int,
        decompressor: Decompressor | None = None,
        skipped_log: SkippedRecordsLog | None = None,
        implausible_times: ImplausibleTimes | None = None,
    ) -> None:
        self._deserializer = deserializer
        self._prepared = deserializer if isinstance(deserializer, PreparedDeserializer) else None
        self._decompressor = decompressor
        self._timestamp_assigner = timestamp_assigner
        self._poison_policy = PoisonPolicy(on_poison, skipped_log)
        self._implausible_times = implausible_times or ImplausibleTimes(future_limit_ms)
        self._metrics = metrics
        self._future_limit_ms = future_limit_ms
        self.strategy = strategy

    async def prepare(self, batch: RecordBatch) -> None:
        """Wait for what the deserializer needs for this batch. Call this before `decorated_parts`."""
        if self._prepared is not None:
            await prepare_values(self._prepared, batch)

    def decorated_parts(self, batch: RecordBatch) -> Iterator[RecordBatch]:
        """Yield the batch with values, event times and watermarks.

        If the payloads are compressed, the batch is yielded in parts, so that a small response cannot fill the memory. A part is
        decompressed only when the caller requests it. It exceeds `PART_BYTES` by one record at most.

        Raises: DeserializationError if a record is poisoned, unless such records are skipped or become dead letters.
        """
        if self._decompressor is None or len(batch) < 2:
            whole = [self.decorate(batch)]
            del batch
            yield whole.pop()  # No reference is kept, so that records are freed when they were emitted (P6).
            return
        start = 0
        while start < len(batch):
            part, start = self._next_part(batch, start, self._decompressor)
            yield part
            del part

    def _next_part(self, batch: RecordBatch, start: int, decompressor: Decompressor) -> tuple[RecordBatch, int]:
        payloads: list[bytes] = []
        size = 0
        for payload in batch.data[start:]:
            if size >= PART_BYTES:
                break
            try:
                payloads += decompressor.decompress([payload])
            except Exception:  # The payload is poisoned. It gets a part of its own, in which `PoisonPolicy` finds it.
                break
            size += len(payloads[-1])
        stop = start + max(len(payloads), 1)
        return self.decorate(batch.slice(start, stop), payloads or None), stop

    def decorate(self, batch: RecordBatch, payloads: Sequence[bytes] | None = None) -> RecordBatch:
        """Return the batch with values, event times and watermarks. A batch without records is returned unchanged.

        `payloads`: the batch's decompressed payloads, if they were decompressed.

        Raises: DeserializationError if a record is poisoned, unless such records are skipped or become dead letters.
        """
        if not len(batch):
            return batch
        whole = batch

        def decorated(part: RecordBatch) -> RecordBatch:
            return self._with_values_and_times(part, payloads if part is whole else None)

        batch = self._poison_policy.apply(batch, decorated)
        return self._with_watermarks(batch) if len(batch) else batch

    def _with_values_and_times(self, batch: RecordBatch, payloads: Sequence[bytes] | None) -> RecordBatch:
        expanded = batch
        if self._decompressor is not None:
            expanded = batch.with_data(payloads or self._decompressor.decompress(batch.data))
            batch = expanded if self._decompressor.replaces_data else replace(batch, raw_bytes=expanded.raw_bytes)
        values = values_of(self._deserializer, expanded)
        if values is not None:
            batch = batch.with_columns(values=values)
        event_times = call_for_items(self._timestamp_assigner, "timestamps", "event time", batch)
        batch = batch.with_columns(event_times=event_times)
        strategy_times = call_for_items(self.strategy, "times", "time", batch)
        arrivals = batch.arrival_millis
        if event_times is not arrivals:
            check_times(event_times)
            self._implausible_times.look_at(batch, event_times)
        if strategy_times is not event_times and strategy_times is not arrivals:
            check_times(strategy_times)
        # For now the watermark column has the times of the strategy. `_with_watermarks` replaces them by watermarks.
        return batch.with_columns(watermarks=strategy_times)

    def _with_watermarks(self, batch: RecordBatch) -> RecordBatch:
        strategy_times = batch.watermarks or ()
        times, capped = cap_future_event_times(strategy_times, batch.arrival_millis, self._future_limit_ms)
        self._metrics.add("future_event_times", capped)
        return batch.with_columns(watermarks=call_for_items(self.strategy, "advance", "watermark", batch, times))


class PoisonPolicy:
    """Decides what happens to the bad (poisoned) records of a batch: they end the job, are skipped, or become dead letters.

    A batch keeps the number and the places of its skipped records. They are counted in the metrics when the position moves past them, so
    records that are read again count once.

    The position of the shard moves past a bad record. A record without an event time does not move the watermark.

    `skipped_log`: the log of skipped records, one for all shards of a job.
    """

    def __init__(self, action: OnBadRecord, skipped_log: SkippedRecordsLog | None = None) -> None:
        self._action = action
        self._skipped_log = skipped_log or SkippedRecordsLog(log)

    def apply(self, batch: RecordBatch, decorate: Decorate) -> RecordBatch:
        """Decorate a batch. Leave out each record that cannot be decorated.

        Raises: DeserializationError if a record cannot be decorated and the policy is FAIL. With any policy it is raised if memory is short
        or a service does not answer, because the record may be good.
        """
        try:
            return decorate(batch)
        except (ConfigurationError, PluginError):  # The plugin or its settings are wrong, and no record is.
            raise
        except Exception:  # `_decorate_one_by_one` finds out which records have failed.
            log.debug(
                "a batch of %s could not be decoded as a whole, so each record is tried alone",
                batch.shard.key,
                exc_info=True,
            )
        return self._decorate_one_by_one(batch, decorate)

    def _decorate_one_by_one(self, batch: RecordBatch, decorate: Decorate) -> RecordBatch:
        handled_by_caller = sys.exception()
        parts: list[RecordBatch] = []
        poisoned: list[PoisonedRecord] = []
        skipped: list[SkippedRecords] = []
        for index, record in enumerate(batch.records):
            try:
                parts.append(decorate(batch.slice(index, index + 1)))
            except (ConfigurationError, PluginError):
                raise
            except Exception as error:
                reason = describe_error(error)
                name = f"record {record.sequence_number} of {batch.shard.key}"
                # A lack of memory, or a service that is away, says nothing about the record, so the record must not be dropped for it.
                own = takewhile(lambda each: each is not handled_by_caller, causes_of(error))
                is_innocent = any(isinstance(each, (MemoryError, *SERVICE_AWAY)) for each in own)
                if self._action is OnBadRecord.FAIL or is_innocent:
                    message = f"{name} cannot be deserialized: {reason}"
                    log_user_error(log, error, message, batch.shard.key, record.sequence_number)
                    remedy = how_to_continue(batch.stream, batch.shard_id, record.sequence_number)
                    remedy = "the record may be good: start the job again" if is_innocent else remedy
                    raise _deserialization_error(batch, record, f"{reason}; {remedy}") from error
                is_kept = self._action is OnBadRecord.DEAD_LETTER
                key, number = batch.shard.key, record.sequence_number
                self._skipped_log.skipped(name, reason, error, key, number, how=DEAD_LETTER if is_kept else "skipped")
                if is_kept:
                    poisoned.append(
                        PoisonedRecord(len(parts), record, str(_deserialization_error(batch, record, reason)))
                    )
                elif skipped and skipped[-1].index == len(parts):
                    skipped[-1] = msgspec.structs.replace(skipped[-1], count=skipped[-1].count + 1)
                else:
                    skipped.append(SkippedRecords(len(parts), 1, number))
        return _joined(batch, parts, tuple(poisoned), tuple(skipped))


def _joined(
    batch: RecordBatch,
    parts: Sequence[RecordBatch],
    poisoned: tuple[PoisonedRecord, ...],
    skipped: tuple[SkippedRecords, ...],
) -> RecordBatch:
    values = None if any(part.decoded is None for part in parts) else _column(part.values for part in parts)
    return replace(
        batch,
        records=_column(part.records for part in parts),
        # The decompressed payloads can be larger than the batch was.
        raw_bytes=max(batch.raw_bytes, sum(part.raw_bytes for part in parts)),
        decoded=values,
        event_times=_column(part.event_time_column for part in parts),
        watermarks=_column(part.watermarks or () for part in parts),
        poisoned=poisoned,
        skipped=skipped,
    )


def _column(columns: Any) -> list[Any]:
    return [each for column in columns for each in column]


def _deserialization_error(batch: RecordBatch, record: UserRecord, reason: str) -> DeserializationError:
    return DeserializationError(batch.stream, batch.shard_id, record.sequence_number, reason)


class AdvancingPositions:
    """Checks that the positions of a publisher rise, from record to record and from batch to batch.

    The order inside a batch is checked only if its records are a list, as other packages' publishers give them. The built-in publishers
    give columns, which the service has ordered.

    - `order_of`: the factory's sort key. If it cannot order sequence numbers, only repeated numbers are noticed.
    - `begins_after`: the position after which the publisher resumed, or None if it did not resume.
    """

    def __init__(self, publisher: str, order_of: Callable[[str], Any], begins_after: SequenceNumber | None) -> None:
        self._publisher = publisher
        self._order_of = order_of
        self._last = begins_after
        self._unchecked_batches = _ORDERED_BATCHES

    def check(self, batch: RecordBatch) -> None:
        """Check the next batch.

        Raises: PluginError if the batch has records but no position, if its position is before its last record, or if the batch is not
        after the previous batch.
        """
        position, last = batch.read_position, self._last
        if position is None:
            if len(batch):
                raise PluginError(
                    f"{self._publisher} gave {counted(len(batch), 'record')} of {batch.shard.key} without "
                    "read_position: set it to the position of the last record, from which the shard is resumed"
                )
            return
        if position.continuation:
            return
        if last is not None and not len(batch) and self._is_behind(position, last):
            raise self._goes_back(batch, "no records", last)
        if last is not None and len(batch):
            first = batch.records[0]
            begins_at = SequenceNumber(first.sequence_number, first.sub_sequence_number)
            if any(found == last or self._is_behind(found, last) for found in (begins_at, position)):
                raise self._goes_back(batch, f"{counted(len(batch), 'record')} from {begins_at} on", last)
        if len(position.sequence) > LONGEST_SEQUENCE:
            raise PluginError(
                f"{self._publisher} gave the position {position.sequence[:40]!r}... of {batch.shard.key}, which has "
                f"{len(position.sequence)} characters: the sequence number of a position may have {LONGEST_SEQUENCE}"
            )
        if len(batch):
            self._check_records(batch)
            end = batch.records[-1]
            ends_at = SequenceNumber(end.sequence_number, end.sub_sequence_number)
            if position != ends_at and self._is_behind(position, ends_at):
                raise PluginError(
                    f"{self._publisher} goes back in {batch.shard.key}: it gave {counted(len(batch), 'record')} up to {ends_at}, with the "
                    f"position {position}, and would give the last of them again. `read_position` is the position of the last record, or "
                    "a later position"
                )
        self._last = position

    def _check_records(self, batch: RecordBatch) -> None:
        """Check that the sequence numbers of the records of a batch rise.

        Whole numbers are compared in every batch. Other sequence numbers are compared in the first batches only, because that is slower.

        Raises: PluginError if two records are in the wrong order.
        """
        records = batch.records
        if isinstance(records, RecordColumns) or len(records) < 2:
            return
        numbers = [record.sequence_number for record in records]
        if getattr(self._order_of, "__func__", self._order_of) in (int, RecordPublisherFactory.order_of):
            # Fast check: decimal numbers with the same number of digits have the same order as their texts.
            if len(set(map(len, numbers))) == 1 and all(map(lt, numbers, islice(numbers, 1, None))):
                return
        elif self._unchecked_batches:
            self._unchecked_batches -= 1
        else:
            return
        found = [SequenceNumber(record.sequence_number, record.sub_sequence_number) for record in records]
        try:
            places = list(map(self._place, found))
            wrong = next(
                (index for index, (place, following) in enumerate(pairwise(places)) if not place < following), None
            )
        except PluginError:
            raise
        except Exception:  # `_is_behind` logs that the numbers have no order, but no number may be given twice.
            wrong = next((index for index, (one, following) in enumerate(pairwise(found)) if one == following), None)
        if wrong is not None:
            raise PluginError(
                f"{self._publisher} gave records of {batch.shard.key} in the wrong order: {found[wrong + 1]} comes after {found[wrong]} in "
                "a batch. Give the records of a shard in the order of their sequence numbers, and each record its own number. The "
                "factory's `order_of` defines the order"
            )

    def _is_behind(self, found: SequenceNumber, last: SequenceNumber) -> bool:
        """Return whether the position `found` is before the position `last`. If `order_of` cannot tell, return False and warn once."""
        try:
            return bool(self._place(found) < self._place(last))
        except PluginError:
            raise
        except Exception as error:
            if self._publisher not in _UNORDERED_PUBLISHERS:
                _UNORDERED_PUBLISHERS.add(self._publisher)
                log.warning(
                    "%s: the factory's `order_of` cannot compare the sequence numbers '%s' and '%s' (%s), so it is not "
                    "noticed if a publisher gives records again. Implement `order_of` in the factory: the default compares whole numbers",
                    self._publisher,
                    last.sequence,
                    found.sequence,
                    describe_error(error),
                )
            return False

    def _place(self, position: SequenceNumber) -> tuple[Any, float]:
        part, order = position.sub_sequence, self._order_of(position.sequence)
        if order is None:
            owner = getattr(self._order_of, "__self__", None)
            name = "order_of" if owner is None else f"{type(owner).__name__}.order_of"
            raise PluginError(f"`{name}` returned None for '{position.sequence}': return a key that can be compared")
        return order, float("inf") if part == WHOLE_RECORD else part

    def _goes_back(self, batch: RecordBatch, given: str, last: SequenceNumber) -> PluginError:
        return PluginError(
            f"{self._publisher} goes back in {batch.shard.key}: after the position {last} it gave {given}, with the position "
            f"{batch.read_position}. `run` must continue after the position that the consumer returned, `create` must make a "
            "publisher that begins after its starting position, and `order_of` must order positions"
        )


def check_types(publisher: str, batch: RecordBatch, keyless: bool = False) -> None:
    """Check the types of the fields of a batch and of its records, except times of arrival, which `check_arrivals` checks.

    `keyless`: whether records may have no partition key. If records are columns, only the first and the last one are checked.

    Raises: PluginError, which names the publisher, the field and its type, if a field has another type.
    """
    _check_fields(publisher, batch)
    records: Iterable[Any] = batch.records
    if isinstance(records, RecordColumns):
        records = [records[0], records[-1]] if len(records) else []
    records = list(records)
    for record in records:
        if not isinstance(record, UserRecord):
            _check(publisher, batch, "a batch with records", record, (UserRecord,))
    for field, types in (_TYPES_OF_KEYLESS if keyless else _TYPES_IN_RECORD).items():
        column = [getattr(record, field) for record in records]
        if not set(map(type, column)) <= set(types):
            wrong = next(value for value in column if type(value) not in types)
            remedy = KEYLESS_REMEDY if field == "partition_key" and wrong is None else ""
            _check(publisher, batch, f"a record with `{field}`", wrong, types, remedy)
        if field == "sequence_number" and "" in column:
            raise PluginError(
                f"{publisher} gave a record with an empty `sequence_number` of {batch.shard.key}: the shard is resumed from it"
            )


def _check_fields(publisher: str, batch: RecordBatch) -> None:
    for field, types in _TYPES_IN_BATCH.items():
        _check(publisher, batch, f"a batch with `{field}`", getattr(batch, field), types)
    if batch.read_position is not None:
        sequence = batch.read_position.sequence
        _check(publisher, batch, "a batch with `read_position.sequence`", sequence, (str,))
        part = batch.read_position.sub_sequence
        _check(publisher, batch, "a batch with `read_position.sub_sequence`", part, (int,))
    for field in ("raw_count", "raw_bytes", "millis_behind_latest"):
        if (getattr(batch, field) or 0) < 0:
            raise PluginError(f"{publisher} gave a batch with `{field}` of {batch.shard.key} that is negative")
    for child in batch.child_shards:
        _check(publisher, batch, "a batch with `child_shards`", child, (Shard,))


def _check(
    publisher: str, batch: RecordBatch, what: str, value: object, types: tuple[type, ...], remedy: str = ""
) -> None:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        wanted = " or ".join("None" if each is type(None) else each.__name__ for each in types)
        found = f"{repr_of(value, 60)}, of the type {type(value).__name__}"
        raise PluginError(f"{publisher} gave {what} of {batch.shard.key} that is {found}: it must be {wanted}{remedy}")
