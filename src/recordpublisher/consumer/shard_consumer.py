"""ShardConsumer: drives one shard's publisher and hands stamped batches on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from recordpublisher.publishers.base import RecordPublisher, RunResult
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard

from .bad_records import OnPoison, PoisonPolicy
from .deserialization import Deserializer
from .event_time import TimestampAssigner
from .watermark_strategies import WatermarkStrategy, cap_future_event_times


class BatchDecorator:
    """What turns one shard's bytes into values with times: deserialiser, event times, watermark strategy, and what to do with poison.

    Counts skipped records (S7) and event times too far ahead of their arrival to move the watermark (W12) into the shard's metrics.
    """

    def __init__(
        self,
        deserializer: Deserializer,
        event_times: TimestampAssigner,
        strategy: WatermarkStrategy,
        metrics: ShardMetrics,
        *,
        on_poison: OnPoison,
        future_limit_ms: int,
    ) -> None:
        self._deserializer = deserializer
        self._event_times = event_times
        self._poison = PoisonPolicy(on_poison, metrics)
        self._metrics = metrics
        self._future_limit_ms = future_limit_ms
        self.strategy = strategy

    def stamp(self, batch: RecordBatch) -> RecordBatch:
        """The batch with values, event times and watermarks; an empty one as it is.

        Raises: DeserializationError for a poisoned record unless such are skipped or dead letters.
        """
        if not len(batch):
            return batch
        batch = self._poison.apply(batch, self._with_values_and_times)
        return self._with_watermarks(batch) if len(batch) else batch

    def _with_values_and_times(self, batch: RecordBatch) -> RecordBatch:
        values = self._deserializer.values(batch)
        if values is not None:
            batch = batch.with_columns(values=values)
        times = self._event_times.of(batch)
        counted = len(batch) if values is None else len(values)
        if not len(times) == counted == len(batch):
            raise ValueError(f"{len(batch)} records have {counted} values and {len(times)} event times")
        batch = batch.with_columns(event_times=times)
        seen = self.strategy.times(batch)
        if len(seen) != len(batch):
            raise ValueError(f"{len(batch)} records have {len(seen)} times for their watermark")
        return batch.with_columns(watermarks=seen)

    def _with_watermarks(self, batch: RecordBatch) -> RecordBatch:
        times = batch.watermarks or ()
        believed, absurd = cap_future_event_times(times, batch.arrival_millis, self._future_limit_ms)
        self._metrics.future_event_times += absurd
        return batch.with_columns(watermarks=self.strategy.advance(believed))


class ShardConsumer:
    """Reads one shard from its publisher to its end: values, event times and watermarks are made here, once for each batch.

    Owns nothing but the run: positions and queues belong to the fetcher, behind the ShardOutput port.
    """

    def __init__(self, publisher: RecordPublisher, stamping: BatchDecorator, output: ShardOutput) -> None:
        self._publisher = publisher
        self._stamping = stamping
        self._output = output
        self._children: Sequence[Shard] = ()

    async def run(self) -> RunResult:
        """Read until the shard's end (COMPLETE) or until the publisher is cancelled."""
        self._publisher.set_read_budget(self._output.first_room())
        result = RunResult.INCOMPLETE
        while result is RunResult.INCOMPLETE:
            result = await self._publisher.run_observed(self._accept)
        if result is RunResult.COMPLETE:
            self._output.end(self._children)
        return result

    async def _accept(self, batch: RecordBatch) -> SequenceNumber | None:
        self._children = batch.child_shards or self._children
        position = batch.read_position
        putting = self._output.put(self._stamping.stamp(batch))
        del batch  # emitted records are not held while the next read waits for room (P6)
        self._publisher.set_read_budget(await putting)
        return position


class ShardOutput(Protocol):
    """Takes one shard's stamped batches, in order."""

    def first_room(self) -> int:
        """The bytes, as held in memory, that the first read may bring (P6)."""
        ...

    async def put(self, batch: RecordBatch) -> int:
        """Queue a batch; returns when the next read may start, with the bytes, as held in memory, that it may bring (P6)."""
        ...

    def end(self, children: Sequence[Shard]) -> None:
        """The shard was read to its end; everything put before is still to be emitted (S2)."""
        ...
