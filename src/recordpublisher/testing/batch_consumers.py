"""Consumers for the contract of publishers: each records what it gets, and behaves in one difficult way."""

from __future__ import annotations

import asyncio

from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch


class RecordingConsumer:
    """Takes every batch whole; owns the batches and the payloads taken."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.payloads: list[bytes] = []
        self._taken: set[SequenceNumber] = set()

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Take the whole batch."""
        return self.take(batch, len(batch))

    def take(self, batch: RecordBatch, count: int) -> SequenceNumber | None:
        """Take the first `count` records; returns the position after them. Raises: AssertionError for one that would come for ever."""
        self.batches.append(batch)
        self.payloads += batch.data[:count]
        position = batch.position_after(count)
        if count:
            assert position is not None, (
                "a batch with records has no read_position: it is the position of its last record"
            )
            assert position not in self._taken, (
                f"the records up to {position} came twice: resume behind the returned position"
            )
            self._taken.add(position)
        return position

    def positions(self) -> list[SequenceNumber]:
        """The position after each record."""
        places = [batch.position_after(count) for batch in self.batches for count in range(1, len(batch) + 1)]
        return [place for place in places if place is not None]


class HalfConsumer(RecordingConsumer):
    """Takes only the first half of each batch."""

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Take the first half of the batch."""
        return self.take(batch, (len(batch) + 1) // 2)


class RefusingConsumer(RecordingConsumer):
    """Returns None for the first batch with records: nothing was taken."""

    def __init__(self) -> None:
        super().__init__()
        self._has_refused = False

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Refuse the first batch, take the others."""
        if len(batch) and not self._has_refused:
            self._has_refused = True
            return None
        return self.take(batch, len(batch))


class SlowConsumer(RecordingConsumer):
    """Is slow, and fails when it is called again before it has returned."""

    def __init__(self) -> None:
        super().__init__()
        self._is_busy = False

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Take the batch slowly. Raises: AssertionError for a call that overlaps another."""
        assert not self._is_busy, "the consumer was called again before it had returned"
        self._is_busy = True
        await asyncio.sleep(0.01)
        self._is_busy = False
        return self.take(batch, len(batch))

    def reset(self) -> None:
        """Prepare for the next call after a cancelled one."""
        self._is_busy = False


class BrokenConsumer:
    """Fails on every batch."""

    class Error(Exception):
        """What it raises."""

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Raise."""
        raise self.Error
