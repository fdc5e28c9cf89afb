"""The position at which a run ends in one shard, if that is known in advance. Later records are not decoded."""

from dataclasses import dataclass, replace
from typing import Protocol

from recordpublisher.publishers.records import RecordBatch


@dataclass(frozen=True, slots=True)
class EndPosition:
    """The end of a run in one shard, before the record with the sequence number `sequence`.

    If `sequence` is None, the end is before the first record that arrived at or after `arrival_ms` (epoch ms). All records after that
    record are left out, even if they arrived earlier. Sequence numbers are compared as whole numbers, as in Kinesis.
    """

    arrival_ms: int
    sequence: int | None = None

    def records_before(self, batch: RecordBatch) -> int:
        """Return how many records of a batch are before this end."""
        if not batch.records:
            return 0
        if self.sequence is not None:
            if int(batch.sequence_numbers[-1]) < self.sequence:
                return len(batch)
            return next(place for place, number in enumerate(batch.sequence_numbers) if int(number) >= self.sequence)
        if max(batch.arrival_millis) < self.arrival_ms:
            return len(batch)
        return next(place for place, arrival in enumerate(batch.arrival_millis) if arrival >= self.arrival_ms)


class RunEnd(Protocol):
    """The place in one shard at which a run ends, before the first record that it does not read."""

    def records_before(self, batch: RecordBatch) -> int:
        """Return how many records of a batch are before the end."""


class RunEndCut:
    """Cuts the batches of one shard at the end of a run.

    - `end`: where the run ends, or None if the run has no end in the shard.
    - `first_past`: the sequence number of the first record that was read after the end; None until there is one.
    """

    def __init__(self, end: RunEnd | None) -> None:
        self._end = end
        self.first_past: str | None = None

    def before_end(self, batch: RecordBatch) -> RecordBatch:
        """Return the records of the next batch that are before the end. When the end was reached, return no records."""
        if self._end is None:
            return batch
        if self.first_past is not None:
            return batch.slice(0, 0)
        count = self._end.records_before(batch)
        if count == len(batch):
            return batch
        self.first_past = batch.sequence_numbers[count]
        # Only this record shows that records before it have expired unread, if the batch has no other record.
        return replace(batch.slice(0, count), cut_arrival_ms=batch.arrival_millis[count])
