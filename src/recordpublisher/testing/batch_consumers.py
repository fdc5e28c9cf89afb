"""Consumers that watch a publisher: each holds what was done with, and breaks one habit of easy consumers."""

from __future__ import annotations

import asyncio

from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch


class Recorder:
    """Takes every batch whole; owns the batches and the payloads done with."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.payloads: list[bytes] = []

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Take the whole batch."""
        return self.take(batch, len(batch))

    def take(self, batch: RecordBatch, count: int) -> SequenceNumber | None:
        """Be done with the first `count` records; answers the position after them."""
        self.batches.append(batch)
        self.payloads += batch.data[:count]
        return batch.position_after(count)

    def positions(self) -> list[SequenceNumber]:
        """The position after each record."""
        places = [batch.position_after(count) for batch in self.batches for count in range(1, len(batch) + 1)]
        return [place for place in places if place is not None]


class HalfConsumer(Recorder):
    """Is done with the first half of each batch only."""

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Take its first half."""
        return self.take(batch, (len(batch) + 1) // 2)


class RefusingOnce(Recorder):
    """Answers nothing to the first batch with records."""

    def __init__(self) -> None:
        super().__init__()
        self._has_refused = False

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Refuse the first, take the others."""
        if len(batch) and not self._has_refused:
            self._has_refused = True
            return None
        return self.take(batch, len(batch))


class OneAtATime(Recorder):
    """Is slow, and fails when it is called again before it has answered."""

    def __init__(self) -> None:
        super().__init__()
        self._is_busy = False

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Take the batch slowly. Raises: AssertionError for a call that overlaps another."""
        assert not self._is_busy, "the consumer was called again before it had answered"
        self._is_busy = True
        await asyncio.sleep(0.01)
        self._is_busy = False
        return self.take(batch, len(batch))

    def was_cancelled(self) -> None:
        """The call that was going on has ended without an answer."""
        self._is_busy = False


class BrokenConsumer:
    """Raises."""

    class Error(Exception):
        """What it raises."""

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Raise."""
        raise self.Error
