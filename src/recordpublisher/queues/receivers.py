"""Decides how many receivers call the queue at the same time, and passes each received record to the sink."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from recordpublisher.publishers.base import QueueSource
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import PluginError
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.retry import RetryPolicy, call_with_retries
from recordpublisher.publishers.safe_text import counted, repr_of
from recordpublisher.publishers.user_code import PluginCall

from ..consumer.event_time import check_arrivals
from ..consumer.shard_consumer import BatchDecorator, check_types
from ..fetcher.pipeline.bounded_runs import Bounds, EndReason
from ..fetcher.pipeline.checked_sink_calls import check_unchanged, has_room, naming_writes
from ..fetcher.pipeline.dead_letters import DeadLetterHandler
from ..fetcher.pipeline.emitter import tell_user_error
from ..fetcher.pipeline.process_suspension import SuspensionDetector
from ..fetcher.pipeline.sink_turn import SinkTurn
from ..fetcher.sink import RecordsCall, Sink, Traced
from ..publishers.shard_metrics import ShardMetrics
from ..publishers.shards import Shard
from .in_flight import InFlight

log = logging.getLogger("recordpublisher.queue")
EMPTY_SECONDS = 0.1
"""Time between two receives (seconds), if the source returns at once when its queue is empty."""
SLOW_RECEIVE_SECONDS = 30.0
"""A receive that takes longer than this is logged (seconds). A receive that waits for records takes up to 20 s, as in SQS."""
FULL_RECEIVES = 10
"""After this many full receives in a row, if all of their records were written, one more receiver calls the queue."""


class Receivers:
    """Owns the receivers and their queued records, and lets only one call of the sink run at a time.

    At first one receiver calls the queue. After ten full receives in a row whose records were written, one more receiver calls. A slow sink
    therefore does not get more records than it can handle. After an empty receive, one receiver fewer calls.

    - `most_open`: a receiver waits when it has this number of records that are not acknowledged.
    - `most_bytes`: every receiver waits when all receivers together hold this number of bytes that are not written.
    - `outages`: how a receive that raises TransientError is retried.
    """

    def __init__(
        self,
        source: QueueSource,
        receivers: Sequence[Receiver],
        in_flight: InFlight,
        sink: Sink,
        dead_letters: DeadLetterHandler,
        clock: Clock,
        suspension: SuspensionDetector,
        traced: Traced,
        *,
        most_open: int,
        most_bytes: int,
        outages: RetryPolicy,
        request_flush: Callable[[], None],
    ) -> None:
        self._source = source
        self._receivers = receivers
        self._in_flight = in_flight
        self._sink = sink
        self._dead_letters = dead_letters
        self._clock = clock
        self._suspension = suspension
        self._most_open = most_open
        self._most_bytes = most_bytes
        self._outages = outages
        self._request_flush = request_flush
        write: RecordsCall = lambda batch: sink.write(batch)  # noqa: E731, PLW0108 - a sink may set its `write` when it is opened
        self._write_to_sink = traced(write) if sink.traces_writes else write
        self._write_call = naming_writes(sink)
        self._bounds = Bounds()
        self._wanted = 1
        self._full_receives = 0
        self._has_seen_tip = False
        self._changed: asyncio.Event | None = None
        self._queue: deque[Receiver] = deque()
        self._wake_writer = asyncio.Event()
        self._is_stopping = False
        self._written: list[str] = []
        """Sequence numbers of the records that were written since the last flush. If the sink itself reports finished records, these are
        only the records that were not deserialized.
        """
        self.turn = SinkTurn()
        """The lock that is held during every call of the sink."""
        self.records = 0
        self.run_records = self._run_bytes = 0
        in_flight.on_closed = self._notify

    def __iter__(self) -> Iterator[Receiver]:
        return iter(self._receivers)

    @property
    def wanted(self) -> int:
        """Number of receivers that should call the queue now."""
        return self._wanted

    def start_run(self, bounds: Bounds) -> None:
        """Prepare for a run."""
        self._bounds, self._is_stopping, self._has_seen_tip = bounds, False, False
        self.run_records = self._run_bytes = 0
        for receiver in self._receivers:
            receiver.is_at_tip, receiver.last_read_ms = False, None

    def end_run(self) -> None:
        """Drop the queued records, and forget the written ones that were not flushed. None of them is acknowledged.

        So the next run may flush the sink even after an error in which the sink has lost records.
        """
        self.turn.allow_flush()
        self._queue.clear()
        self._written.clear()
        for receiver in self._receivers:
            receiver.queued = receiver.waits_since = None
            receiver.held_bytes = 0

    def wake(self) -> None:
        """Make `write_all` check again whether the sink has room."""
        self._wake_writer.set()

    def stop(self) -> None:
        """Make `write_all` return after the current write."""
        self._is_stopping = True
        self._wake_writer.set()

    def take_written(self) -> list[str]:
        """Return the sequence numbers of the records that were written since the last call of this method.

        Call this directly after a flush of the sink: then all of these records are stored.
        """
        written, self._written = self._written, []
        return written

    # --- receive: one task a receiver, which is cancelled at the end ---

    async def receive_all(self, receiver: Receiver) -> None:
        """Receive until cancelled. In a run with `stop_at_tip`, receive until the queue is empty."""
        while await self._wait_for_turn(receiver):
            # 1. Receive. If this is cancelled, the source releases the records that the call brings.
            began, lost_before = self._clock.monotonic(), self._lost_seconds()
            records = await self._receive(receiver)
            # 2. Keep the records before anything can fail. From now on each record is acknowledged, or released at the end.
            passed_on = self._in_flight.take(records, receiver.metrics, self._lost_seconds() - lost_before)
            count, size = self._measure(receiver, records)
            # 3. Deserialize the records, and wait until the sink has written them.
            await self._pass_on(receiver, passed_on)
            # If the source never waits, other tasks run here. If its queue is empty too, the pause also keeps the CPU idle.
            is_idle = not records and self._clock.monotonic() - began < EMPTY_SECONDS
            await asyncio.sleep(EMPTY_SECONDS if is_idle else 0)
            # 4. Limit the number of open records. The receive counts as full only when there is room again, so a slow sink gets no
            # more receivers.
            while receiver.metrics.unacknowledged >= self._most_open:
                self._request_flush()
                await self._wait_for_change()
            self._count(receiver, count, size)

    def _lost_seconds(self) -> float:
        """Return for how long this process was suspended in total so far (seconds)."""
        self._suspension.check()
        return self._suspension.lost_seconds

    async def _wait_for_turn(self, receiver: Receiver) -> bool:
        """Wait until the receiver may call the queue, and return True. Return False at the end of a run with `stop_at_tip`."""
        while True:
            is_wanted = receiver.index < self._wanted
            if self._bounds.stop_at_tip and (receiver.is_at_tip or (self._has_seen_tip and not is_wanted)):
                return False
            if is_wanted and sum(each.held_bytes for each in self._receivers) < self._most_bytes:
                return True
            await self._wait_for_change()

    async def _receive(self, receiver: Receiver) -> Sequence[UserRecord]:
        receiver.receiving_since_ms = self._clock.now_ms()
        try:
            name = f"{type(self._source).__name__}.receive"
            records = await call_with_retries(partial(self._call, receiver.metrics), self._outages, service=name)
        finally:
            receiver.receiving_since_ms = None
        found: Any = records
        if not isinstance(found, Sequence) or not all(isinstance(each, UserRecord) for each in records):
            raise PluginError(f"{name} returned {repr_of(found)}: return a list of UserRecord, and [] for none")
        if records:
            check_types(f"`{name}`", RecordBatch(receiver.shard, records), keyless=True)
        return records

    async def _call(self, metrics: ShardMetrics) -> Sequence[UserRecord]:
        with PluginCall(self._source, "receive", slow_after=SLOW_RECEIVE_SECONDS):
            return await self._source.receive(metrics)

    def _measure(self, receiver: Receiver, records: Sequence[UserRecord]) -> tuple[int, int]:
        """Count a receive in the metrics. Return the number of its records, and their bytes.

        The age of the oldest record becomes the receiver's `millis_behind_latest`.

        Raises: PluginError if the arrival of a record is not a valid time.
        """
        now_ms = receiver.last_read_ms = self._clock.now_ms()
        behind_ms = 0
        if records:
            check_arrivals(type(self._source).__name__, RecordBatch(receiver.shard, records))
            receiver.last_record_ms = now_ms
            behind_ms = max(1, now_ms - round(min(each.arrival for each in records) * 1000))
        count, size = len({each.sequence_number for each in records}), sum(len(each.data) for each in records)
        receiver.metrics.count_response(count, size, behind_ms)
        receiver.metrics.add("number_of_deaggregated_records", len(records))
        return count, size

    async def _pass_on(self, receiver: Receiver, records: list[UserRecord]) -> None:
        if not records:
            return
        batch: RecordBatch = RecordBatch(
            receiver.shard,
            records,
            receiver.metrics.millis_behind_latest,
            raw_count=len({each.sequence_number for each in records}),
            raw_bytes=sum(len(each.data) for each in records),
        )
        receiver.held_bytes = batch.held_bytes
        skipped = Counter(batch.sequence_numbers)
        await receiver.decorator.prepare(batch)
        parts = receiver.decorator.decorated_parts(batch)
        del batch, records  # Written records must be freed while the next part waits.
        while (part := next(parts, None)) is not None:
            skipped.subtract(part.sequence_numbers)
            skipped.subtract([poisoned.record.sequence_number for poisoned in part.poisoned])
            if len(part) or part.poisoned:
                receiver.queued, receiver.waits_since = part, self._clock.monotonic()
                del part
                receiver.taken.clear()
                self._queue.append(receiver)
                self._wake_writer.set()
                await receiver.taken.wait()
        receiver.held_bytes = 0
        receiver.metrics.add("skipped_records", skipped.total())
        self._in_flight.finish(skipped.elements())
        self._notify()

    def _count(self, receiver: Receiver, count: int, size: int) -> None:
        """Use one receiver more after enough full receives, or one fewer after an empty receive.

        Called after a receive of `count` records and `size` bytes, when its records were written and there is room for more.
        """
        is_full = count >= self._source.full_receive or size >= self._source.full_bytes
        self._full_receives = self._full_receives + 1 if is_full else 0
        if self._full_receives == FULL_RECEIVES:
            self._full_receives = 0
            self._wanted = min(self._wanted + 1, len(self._receivers))
        elif not count:
            self._wanted = max(self._wanted - 1, 1)
            receiver.is_at_tip = self._has_seen_tip = True
        self._notify()

    async def _wait_for_change(self) -> None:
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    # --- write: one task, which is stopped and never cancelled ---

    async def write_all(self, complete: Callable[[EndReason], None]) -> None:
        """Write the queued batches of the receivers until stopped. When a bound of the run is reached, call `complete` and return."""
        while not self._is_stopping:
            if (reason := self._end_reason()) is not None:
                complete(reason)
                return
            if not self._queue or not has_room(self._sink):
                self._wake_writer.clear()
                await self._wake_writer.wait()
                continue
            receiver = self._queue.popleft()
            batch, left = self._next_part(receiver)
            async with self.turn.lock:
                try:
                    await self._write(receiver, batch)
                except Exception as error:
                    self.turn.fail(error)
                    raise
            if left is None:
                receiver.queued = receiver.waits_since = None
                receiver.taken.set()
            else:
                receiver.queued = left
                self._queue.appendleft(receiver)

    def _end_reason(self) -> EndReason | None:
        if self._bounds.max_records is not None and self.run_records >= self._bounds.max_records:
            return EndReason.MAX_RECORDS
        if self._bounds.max_bytes is not None and self._run_bytes >= self._bounds.max_bytes:
            return EndReason.MAX_BYTES
        return None

    def _next_part(self, receiver: Receiver) -> tuple[RecordBatch, RecordBatch | None]:
        batch, most = receiver.queued, self._bounds.max_records
        assert batch is not None
        count = len(batch) if most is None else min(len(batch), most - self.run_records)
        # An aggregate is written whole, even beyond the bound: its parts are acknowledged together, so a run that ends within it would
        # acknowledge nothing, and each further run would receive it once more until it is a dead letter of the queue.
        numbers = batch.sequence_numbers
        while 0 < count < len(batch) and numbers[count] == numbers[count - 1]:
            count += 1
        return (batch, None) if count == len(batch) else (batch.slice(0, count), batch.slice(count, len(batch)))

    async def _write(self, receiver: Receiver, batch: RecordBatch) -> None:
        undeserialized = [poisoned.record.sequence_number for poisoned in batch.poisoned]
        numbers = [*batch.sequence_numbers, *undeserialized]
        if not self._holds(receiver, numbers):
            return
        if batch.poisoned:
            await self._dead_letters.handle_undeserialized(batch)
            # Asked again, because the dead letters may have taken long.
            if not self._holds(receiver, batch.sequence_numbers):
                self._written += undeserialized
                return
        if len(batch):
            if self._sink.tells_done:
                # Noted before the write, because the sink may report the records during it.
                self._in_flight.expect_reports(batch.sequence_numbers)
            with self._write_call.with_subject(receiver.shard.key):
                try:
                    count = len(batch)
                    await self._write_to_sink(batch)
                    check_unchanged(self._sink, batch, count)
                except Exception as error:
                    self._in_flight.cancel_reports(batch.sequence_numbers)
                    tell_user_error(error, self._sink, batch)
                    raise
        self._written += undeserialized if self._sink.tells_done else numbers
        receiver.records += len(batch)
        receiver.payload_bytes += batch.raw_bytes
        receiver.last_write_ms = self._clock.now_ms()
        self.records += len(batch)
        self.run_records += len(batch)
        self._run_bytes += batch.raw_bytes

    def _holds(self, receiver: Receiver, numbers: Sequence[str]) -> bool:
        """Return whether all of these records are still hidden from other processes.

        If one is not, its visibility timeout has expired, and the queue delivers it again. The records are then given up
        (`InFlight.give_up`).
        """
        if self._in_flight.are_held(numbers):
            return True
        log.warning(
            "%s of %s became visible in the queue again before they were written, so the queue delivers them once more",
            counted(len(numbers), "record"),
            receiver.shard.key,
        )
        self._in_flight.give_up(numbers)
        return False


class Receiver(msgspec.Struct, eq=False):
    """One receiver, with the records of its current call. It makes one call to the queue at a time.

    For sinks and metrics it looks like a shard (`receiver_shard`).
    """

    index: int
    shard: Shard
    decorator: BatchDecorator
    metrics: ShardMetrics
    records: int = 0
    """Number of records that were written. `payload_bytes` is their size."""
    payload_bytes: int = 0
    queued: RecordBatch | None = None
    """The next batch of this receiver that the sink gets."""
    held_bytes: int = 0
    """Bytes of memory that the records of the current receive take until they are written."""
    receiving_since_ms: int | None = None
    """When the receiver's current call began, including its retries (epoch ms). None if it makes no call."""
    is_at_tip: bool = False
    last_read_ms: int | None = None
    """When the last successful receive of this run returned (epoch ms)."""
    last_record_ms: int | None = None
    """When the receiver last got a record (epoch ms)."""
    last_write_ms: int | None = None
    waits_since: float | None = None
    """When `queued` began to wait for its write (monotonic seconds). None if nothing waits."""
    taken: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """An event that is set when `queued` was written completely."""
