"""ExpandedRecords collects the records of a batch while aggregates are expanded."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import astuple

from ..positions import SequenceNumber
from ..records import COLUMNS, RECORD_OVERHEAD_BYTES, RecordColumns, UserRecord, to_millis

MAX_BATCH_BYTES = 4 * 2**20
"""A batch that takes this much memory (P6) gets no more sub-records. They go into the next batch."""


class ExpandedRecords:
    """The records of the next batch so far, as columns. A Kinesis record counts in the batch in which it begins."""

    def __init__(self) -> None:
        self._columns: list[list[Any]] = [[] for _ in COLUMNS]
        self._plain: list[UserRecord] = []  # the plain records after the last aggregate
        self.held_bytes = 0
        """Memory of the records in bytes (P6): data before de-aggregation plus a measured overhead for each record."""
        self.raw_count = 0

    def add(self, columns: Iterable[Iterable[Any]], raw_bytes: int) -> None:
        """Add sub-records, as `COLUMNS`."""
        if self._plain:
            data, numbers, arrivals, *others = zip(*map(astuple, self._plain), strict=True)
            held_bytes, self._plain = self.held_bytes, []
            self.add((data, numbers, map(to_millis, arrivals), *others), 0)
            self.held_bytes = held_bytes  # it includes the plain records already
        count = len(self._columns[0])
        for column, more in zip(self._columns, columns, strict=True):
            column.extend(more)
        self.held_bytes += raw_bytes + RECORD_OVERHEAD_BYTES * (len(self._columns[0]) - count)

    def add_plain(self, record: UserRecord, done: SequenceNumber | None) -> None:
        """Add a record that is not an aggregate, unless it was done before."""
        self.held_bytes += len(record.data)
        if done is None or record.sequence_number != done.sequence:
            self.held_bytes += RECORD_OVERHEAD_BYTES
            self._plain.append(record)

    def records(self) -> RecordColumns:
        """Return the user records."""
        if not self._columns[0]:
            return RecordColumns(records=self._plain)
        self.add([()] * len(self._columns), 0)  # moves the plain records into the columns, at the end
        return RecordColumns(**dict(zip(COLUMNS, self._columns, strict=True)))

    @property
    def raw_bytes(self) -> int:
        """Bytes of data before de-aggregation."""
        return self.held_bytes - RECORD_OVERHEAD_BYTES * (len(self._columns[0]) + len(self._plain))

    @property
    def is_full(self) -> bool:
        """Whether the batch takes as much memory as it may. A batch without records is never full."""
        return self.held_bytes >= MAX_BATCH_BYTES and bool(self._columns[0] or self._plain)


def records_after(records: Sequence[UserRecord], done: SequenceNumber | None) -> Sequence[UserRecord]:
    """Return the plain records after a position inside an aggregated record (P2), or all records if `done` is None."""
    if done is None:
        return records
    return [record for record in records if record.sequence_number != done.sequence]
