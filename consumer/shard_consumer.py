"""ShardConsumer: drives one shard's publisher and hands stamped batches on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..publishers.base import RecordPublisher, RunResult
from ..publishers.positions import SequenceNumber
from ..publishers.records import RecordBatch
from ..publishers.shards import Shard
from .deserialization import Deserialization
from .event_time import EventTimes
from .output import ShardOutput
from .watermarks import WatermarkStrategy, without_absurd_futures


@dataclass(slots=True)
class Stamping:
    """What turns one shard's bytes into values with times: deserialisation, event times, watermark strategy."""

    deserialization: Deserialization
    event_times: EventTimes
    strategy: WatermarkStrategy
    future_limit_ms: int
    absurd_futures: int = 0
    """Counter: event times too far ahead of their arrival to move the watermark (W12)."""

    def stamp(self, batch: RecordBatch) -> RecordBatch:
        """The batch with values, event times and watermarks; an empty one as it is."""
        batch = self.deserialization.apply(batch)
        if not len(batch):
            return batch
        times = self.event_times.of(batch)
        believed, absurd = without_absurd_futures(times, batch.arrival_millis, self.future_limit_ms)
        self.absurd_futures += absurd
        return replace(batch, event_times=times, watermarks=self.strategy.advance(believed))


class ShardConsumer:
    """Reads one shard from its publisher to its end: values, event times and watermarks are made here, once for each batch.

    Owns nothing but the run: positions and queues belong to the fetcher, behind the ShardOutput port.
    """

    def __init__(self, publisher: RecordPublisher, stamping: Stamping, output: ShardOutput) -> None:
        self._publisher = publisher
        self._stamping = stamping
        self._output = output
        self._children: Sequence[Shard] = ()

    async def run(self) -> RunResult:
        """Read until the shard's end (COMPLETE) or until the publisher is cancelled."""
        result = RunResult.INCOMPLETE
        while result is RunResult.INCOMPLETE:
            result = await self._publisher.run(self._accept)
        if result is RunResult.COMPLETE:
            self._output.end(self._children)
        return result

    async def _accept(self, batch: RecordBatch) -> SequenceNumber | None:
        self._children = batch.child_shards or self._children
        room = await self._output.put(self._stamping.stamp(batch))
        self._publisher.offer_room(room)
        return batch.read_position
