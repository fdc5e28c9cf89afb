"""ShardConsumer runs one shard's publisher and passes its batches on with values, event times and watermarks."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from recordpublisher.publishers.base import RecordPublisher, RunResult
from recordpublisher.publishers.errors import PluginError
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.properties.groups.job import OnBadRecord
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.skipped_records import SkippedRecordsLog
from recordpublisher.publishers.user_code import is_raised_in_user_code

from .advancing_positions import AdvancingPositions
from .batch_types import check_types
from .deserialization import Decompressor, Deserializer, PreparedDeserializer
from .event_time import ImplausibleTimes, TimestampAssigner, check_arrivals, check_times
from .poison_policy import PoisonPolicy
from .watermark_strategies import WatermarkStrategy, cap_future_event_times

EMPTY_RUN_SECONDS = 0.1
PART_BYTES = 4 * 2**20
"""Decompressed payload bytes that are made at a time: some 20 ms of the event loop."""


class BatchDecorator:
    """Adds values, event times and watermarks to the batches of one shard. If there is a decompressor, it decompresses payloads first.

    It handles poisoned records (S7). In the shard's metrics it counts skipped records, and event times that are too far
    ahead of their arrival to move the watermark (W12).
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
        self._poison_policy = PoisonPolicy(on_poison, metrics, skipped_log)
        self._implausible_times = implausible_times or ImplausibleTimes()
        self._metrics = metrics
        self._future_limit_ms = future_limit_ms
        self.strategy = strategy

    async def prepare(self, batch: RecordBatch) -> None:
        """Wait for what the deserializer needs for this batch. The deserializer keeps it as long as the batch exists."""
        if self._prepared is not None:
            await self._prepared.prepare(batch)

    def parts(self, batch: RecordBatch) -> Iterator[RecordBatch]:
        """Yield the batch, decorated; in parts if its payloads are compressed, so that a small response cannot fill the memory (P6).

        A part is decompressed when the caller asks for it. It exceeds `PART_BYTES` by one record at most.

        Raises: DeserializationError if a record is poisoned, unless such records are skipped or dead letters.
        """
        if self._decompressor is None or len(batch) < 2:
            whole = [self.decorate(batch)]
            del batch
            yield whole.pop()  # keeps no reference to emitted records (P6)
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
            except Exception:  # poisoned: it gets a part of its own, where the policy finds it
                break
            size += len(payloads[-1])
        stop = start + max(len(payloads), 1)
        return self.decorate(batch.slice(start, stop), payloads or None), stop

    def decorate(self, batch: RecordBatch, payloads: Sequence[bytes] | None = None) -> RecordBatch:
        """Return the batch with values, event times and watermarks. A batch without records is returned unchanged.

        `payloads` are the batch's decompressed payloads, if they were decompressed.

        Raises: DeserializationError if a record is poisoned, unless such records are skipped or dead letters.
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
        values = self._deserializer.values(expanded)
        if values is not None:
            batch = batch.with_columns(values=values)
        event_times = self._timestamp_assigner.timestamps(batch)
        value_count = len(batch) if values is None else len(values)
        if not len(event_times) == value_count == len(batch):
            raise ValueError(f"{len(batch)} records have {value_count} values and {len(event_times)} event times")
        batch = batch.with_columns(event_times=event_times)
        strategy_times = self.strategy.times(batch)
        if len(strategy_times) != len(batch):
            raise ValueError(f"{len(batch)} records have {len(strategy_times)} times for their watermark")
        arrivals = batch.arrival_millis
        if event_times is not arrivals:
            check_times(event_times)
            self._implausible_times.look_at(batch, event_times)
        if strategy_times is not event_times and strategy_times is not arrivals:
            check_times(strategy_times)
        # For now the watermark column has the strategy's times. `_with_watermarks` replaces them by watermarks.
        return batch.with_columns(watermarks=strategy_times)

    def _with_watermarks(self, batch: RecordBatch) -> RecordBatch:
        strategy_times = batch.watermarks or ()
        times, capped = cap_future_event_times(strategy_times, batch.arrival_millis, self._future_limit_ms)
        self._metrics.add("future_event_times", capped)
        return batch.with_columns(watermarks=self.strategy.advance(times))


class ShardConsumer:
    """Reads one shard to its end.

    It owns only the run: positions and queues belong to the fetcher, behind the ShardOutput port.

    - `order_of`: a sort key for sequence numbers.
    - `begins_after`: the position after which the publisher resumes, or None if it reads from a start.
    - `shard`: the shard that is read. If it is None, the batches may be those of any shard.
    """

    def __init__(
        self,
        publisher: RecordPublisher,
        decorator: BatchDecorator,
        output: ShardOutput,
        order_of: Callable[[str], Any] = int,
        begins_after: SequenceNumber | None = None,
        shard: Shard | None = None,
    ) -> None:
        self._positions = AdvancingPositions(type(publisher).__name__, order_of, begins_after)
        self._publisher = publisher
        self._shard = shard
        self._decorator = decorator
        self._output = output
        self._children: Sequence[Shard] = ()
        self._call: Coroutine[Any, Any, SequenceNumber | None] | None = None

    async def run(self) -> RunResult:
        """Read until the shard's end (COMPLETE) or until the publisher is cancelled.

        Raises: PluginError if the publisher breaks its contract; the errors of the publisher and the output.
        """
        self._publisher.set_read_budget(self._output.first_read_budget())
        result = RunResult.INCOMPLETE
        while result is RunResult.INCOMPLETE:
            before = self._call
            result = await self._publisher.run_observed(self._consume)
            self._check_awaited()
            if result is RunResult.INCOMPLETE and self._call is before:
                await asyncio.sleep(EMPTY_RUN_SECONDS)
        if not isinstance(result, RunResult):
            raise PluginError(
                f"{type(self._publisher).__name__}.run returned {result!r}: at the end of the shard return RunResult.COMPLETE, before it "
                "INCOMPLETE"
            )
        if result is RunResult.COMPLETE:
            self._output.end(self._children)
        return result

    def _consume(self, batch: RecordBatch) -> Coroutine[Any, Any, SequenceNumber | None]:
        self._check_awaited()
        self._call = self._accept(batch)
        return self._call

    def _check_awaited(self) -> None:
        """Check that the publisher awaited the last call. Raises: PluginError if it did not, because that batch would be lost."""
        if self._call is not None and inspect.getcoroutinestate(self._call) == inspect.CORO_CREATED:
            self._call.close()  # so that Python does not warn as well
            raise PluginError(
                f"{type(self._publisher).__name__} does not await the consumer: write `await consumer(batch)`"
            )

    async def _accept(self, batch: RecordBatch) -> SequenceNumber | None:
        if not isinstance(batch, RecordBatch):
            raise PluginError(f"{type(self._publisher).__name__} gave {batch!r:.100}: a consumer takes a RecordBatch")
        shard = self._shard
        if shard is not None and batch.shard is not shard and batch.shard.key != shard.key:
            raise PluginError(
                f"{type(self._publisher).__name__} gave a batch of {batch.shard.key}, and it was created to read {shard.key}: give the "
                "batch the shard that `create` got"
            )
        check_types(type(self._publisher).__name__, batch)
        if len(batch):
            check_arrivals(type(self._publisher).__name__, batch)
        self._children = batch.child_shards or self._children
        position = batch.read_position
        self._positions.check(batch)
        await self._decorator.prepare(batch)
        parts = self._decorator.parts(batch)
        del batch  # while the next read waits for memory, records that were emitted are freed (P6)
        while (part := next(parts, None)) is not None:
            putting = self._output.put(part)
            del part
            self._publisher.set_read_budget(await putting)
        # A publisher that never waits leaves the event loop to the emitter and the other shards here.
        await asyncio.sleep(0)
        return position


def name_publisher(error: Exception, what: str) -> None:
    """Add to an error of a plugin's code what has failed. Errors of `ShardConsumer` also pass through that code, but name it already."""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    if ShardConsumer._accept.__code__ not in frames and is_raised_in_user_code(error, or_installed=True):
        error.add_note(f"{what} failed")


class ShardOutput(Protocol):
    """Receives the batches of one shard, in order."""

    def first_read_budget(self) -> int:
        """Reserve memory for the first read. Return the bytes, as held in memory, that it may bring (P6)."""

    async def put(self, batch: RecordBatch) -> int:
        """Queue a batch, then wait until the next read may start. Return the bytes, as held in memory, that it may bring (P6)."""

    def end(self, children: Sequence[Shard]) -> None:
        """Note that the shard was read to its end. Batches that were put before may not be emitted yet (S2)."""
