"""ShardQueue holds the batches of one shard that were read and not emitted, in order."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from recordpublisher.publishers.records import RecordBatch, to_millis


class ShardQueue:
    """Owns the batches, their bytes as held in memory, and how many records of the first batch were taken already."""

    def __init__(self) -> None:
        self._batches: deque[RecordBatch] = deque()
        self._offset = 0
        self.bytes = 0
        self.records = 0
        self.dead_letters = 0
        """Records that could not be deserialised and wait for the dead-letter sink."""

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[RecordBatch]:
        return iter(self._batches)

    def __getitem__(self, index: int) -> RecordBatch:
        return self._batches[index]

    @property
    def next_watermark(self) -> int | None:
        """The watermark of the next record; None if the queue is empty or begins with a batch without records."""
        if not self._batches or not self._batches[0].watermarks:
            return None
        return self._batches[0].watermarks[self._offset]

    @property
    def unhandled(self) -> int:
        """Number of records and dead letters.

        Batches without any do not count: at most one is queued in a row, so they need no bound (P6).
        """
        return self.records + self.dead_letters

    @property
    def arrival_ms(self) -> tuple[int, int] | None:
        """Arrivals of the next and of the last record, epoch ms; None without records."""
        filled = [batch for batch in self._batches if len(batch)]
        if not filled:
            return None
        offset = self._offset if filled[0] is self._batches[0] else 0
        return filled[0].arrival_millis[offset], filled[-1].arrival_millis[-1]

    @property
    def oldest_ms(self) -> int | None:
        """When the next record arrived, epoch ms; None without records."""
        offset = self._offset
        for batch in self._batches:
            if len(batch):
                return to_millis(batch.records[offset].arrival)
            offset = 0  # only the first batch has records that were taken
        return None

    def count_within(self, limit: float) -> int:
        """Return how many of the first batch's next records have a watermark up to `limit`. Watermarks never fall within a batch."""
        watermarks = self._batches[0].watermarks or ()
        if watermarks[-1] <= limit:
            return len(watermarks) - self._offset
        return bisect_right(watermarks, limit, lo=self._offset) - self._offset

    def push(self, batch: RecordBatch) -> int:
        """Queue a batch at the end. Return the bytes that this freed.

        Of several batches without records in a row only the last is kept, because they would pile up without a bound
        while a sink stalls (P6). A batch with dead letters is kept.
        """
        freed = 0
        if self._batches and not len(batch) and not len(self._batches[-1]) and not self._batches[-1].poisoned:
            dropped = self._batches.pop()
            freed = dropped.held_bytes
            if dropped.after_gap:
                batch = replace(batch, after_gap=True)
            self.bytes -= freed
        self._batches.append(batch)
        self.bytes += batch.held_bytes
        self.records += len(batch)
        self.dead_letters += len(batch.poisoned)
        return freed

    def pop(self, count: int) -> tuple[RecordBatch, int]:
        """Take the next `count` records of the first batch.

        Return them and the bytes freed, which are 0 while the batch has more records.
        """
        head = self._batches[0]
        stop = self._offset + count
        part = head.slice(self._offset, stop)
        self.records -= len(part)
        self.dead_letters -= len(part.poisoned)
        if stop < len(head):
            self._offset = stop
            return part, 0
        self._batches.popleft()
        self._offset = 0
        self.bytes -= head.held_bytes
        return part, head.held_bytes

    def clear(self) -> int:
        """Drop everything. Return the bytes freed."""
        freed = self.bytes
        self._batches.clear()
        self._offset = self.bytes = self.records = self.dead_letters = 0
        return freed
