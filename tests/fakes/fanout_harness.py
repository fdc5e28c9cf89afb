"""A fan-out publisher on the scripted service and virtual time, and the consumer that receives its batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.fanout import FanOutRecordPublisher, FanOutRecordPublisherFactory
from recordpublisher.publishers.fanout.registration import ConsumerRefCounts
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fanout_service import EFO, SHARD, ScriptedPorts

Consumer = Callable[[RecordBatch], Awaitable[SequenceNumber | None]]


class FanOutHarness:
    """One shard, its publisher on a scripted service, and a consumer that accepts every batch."""

    def __init__(self, *subscriptions: Any, draw: float = 1.0, **properties: object) -> None:
        self.ports = ScriptedPorts(*subscriptions)
        self.metrics = ShardMetrics()
        self.ref_counts = ConsumerRefCounts()
        self.batches: list[RecordBatch] = []
        self._draw = draw
        self._properties: dict[str, object] = {**EFO, **properties}

    @property
    def sequences(self) -> list[str]:
        return [number for batch in self.batches for number in batch.sequence_numbers]

    def factory(self, **properties: object) -> FanOutRecordPublisherFactory:
        return FanOutRecordPublisherFactory(
            {**self._properties, **properties},
            ports=self.ports,
            clock=VirtualClock(),
            ref_counts=self.ref_counts,
            draw=lambda: self._draw,
        )

    async def publisher(self, position: StartingPosition | None = None) -> FanOutRecordPublisher:
        """A publisher whose consumer is registered."""
        self.made = self.factory()
        return await self.made.create(SHARD, position or StartingPosition.trim_horizon(), self.metrics)

    async def take(self, batch: RecordBatch) -> SequenceNumber | None:
        self.batches.append(batch)
        return batch.read_position

    async def read(self, position: StartingPosition | None = None, consumer: Consumer | None = None) -> RunResult:
        """Run again and again until the shard ends."""
        publisher = await self.publisher(position)
        result = RunResult.INCOMPLETE
        while result is RunResult.INCOMPLETE:
            result = await publisher.run(consumer or self.take)
        return result

    def read_all(self, position: StartingPosition | None = None, consumer: Consumer | None = None) -> RunResult:
        return run_virtual(self.read(position, consumer))
