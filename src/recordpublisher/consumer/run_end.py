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
    - `is_past`: whether a record behind the end was read.
    """

    def __init__(self, end: RunEnd | None) -> None:
        self._end = end
        self.is_past = False

    def before_end(self, batch: RecordBatch) -> RecordBatch:
        """Return the records of the next batch that are before the end. Once a record was behind it, so are all later ones."""
        if self._end is None:
            return batch
        count = 0 if self.is_past else self._end.records_before(batch)
        self.is_past |= count < len(batch)
        return batch.slice(0, count) if self.is_past else batch
