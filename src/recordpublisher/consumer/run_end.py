"""Where a run ends in one shard, if that is known before: records behind that end are not decoded."""

from typing import Protocol

from recordpublisher.publishers.records import RecordBatch


class RunEnd(Protocol):
    """Where a run ends in one shard: at the first record that it does not read."""

    def records_before(self, batch: RecordBatch) -> int:
        """Return how many records of a batch are before the end."""


class RunEndCut:
    """Cuts the batches of one shard at the end of a run.

    - `end`: the end, or None if the run has no end in the shard.
    - `first_past`: the sequence number of the first record behind the end that was read; None before that.
    """

    def __init__(self, end: RunEnd | None) -> None:
        self._end = end
        self.first_past: str | None = None

    def before_end(self, batch: RecordBatch) -> RecordBatch:
        """Return the records of the next batch that are before the end. Once a record was behind it, so are all later ones."""
        if self._end is None:
            return batch
        if self.first_past is not None:
            return batch.slice(0, 0)
        count = self._end.records_before(batch)
        if count == len(batch):
            return batch
        self.first_past = batch.sequence_numbers[count]
        return batch.slice(0, count)
