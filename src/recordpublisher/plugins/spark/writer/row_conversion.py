"""Converts Arrow rows to Kinesis records, column by column."""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from recordpublisher.plugins.sinks.kinesis.records import PendingRecord, size_of
from recordpublisher.publishers.errors import SinkError

from .columns import WriteColumns, data_of
from .rejected_rows import RejectRow, valid_rows
from .row_ids import IdField, RowIds

SLICE_ROWS = 2_000
SLICE_BYTES = 8 * 2**20
"""Spark's batches are converted in slices of at most this size, which bounds the memory for records that are not put yet."""
RANDOM_KEY_BYTES = 8


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in pieces of bounded size, without copying."""
    mean = batch.nbytes / max(1, batch.num_rows)
    rows = max(1, min(SLICE_ROWS, int(SLICE_BYTES / max(1.0, mean))))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


@dataclass(frozen=True, slots=True)
class RowsToRecords:
    """Makes the records of one task's rows.

    - `stream`: None if a column names it.
    - `ids`, `field`: if given, `field` inserts the ids into the data.
    """

    columns: WriteColumns
    stream: str | None
    ids: RowIds | None = None
    field: IdField | None = None

    def records_of(self, rows: pa.RecordBatch) -> dict[str, list[PendingRecord]]:
        """Return the records by target stream, in order. Raises: SinkError if a row has no data or target, or cannot hold its id."""
        data = self._required(rows, self.columns.data, "data")
        streams = self._required(rows, self.columns.stream, "stream") if self.columns.stream is not None else None
        keys = _texts(rows, self.columns.partition_key)
        hash_keys = _texts(rows, self.columns.explicit_hash_key) or [None] * len(data)
        if self.ids is not None and self.field is not None:
            data, keys = _with_ids(self.ids, self.field, streams or [self.stream] * len(data), keys, hash_keys, data)
        records = [
            PendingRecord(one, key, hash_key, size_of(one, key))
            for one, key, hash_key in zip(data, _keys(keys, len(data)), hash_keys, strict=True)
        ]
        return _by_stream(streams, records) if streams is not None else {str(self.stream): records}

    def valid_rows(self, rows: pa.RecordBatch, reject: RejectRow | None) -> pa.RecordBatch:
        """Return the rows that can become records, and pass the others to `reject`.

        Without `reject` return all rows. A bad row then fails later.
        """
        return rows if reject is None else valid_rows(rows, self.columns, self.stream, self.field, reject)

    def _required(self, rows: pa.RecordBatch, place: int, name: str) -> list[Any]:
        column = rows.column(place)
        if column.null_count:
            row = column.is_null().index(True).as_py()
            shown = {
                rows.schema.field(at).name: str(rows.column(at)[row])[:60] for at in self._shown_places() if at != place
            }
            raise SinkError(f"a row has no {name} (null): {shown}; filter such rows out")
        return data_of(column) if name == "data" else column.to_pylist()

    def _shown_places(self) -> list[int]:
        columns = self.columns
        places = (columns.stream, columns.partition_key, columns.explicit_hash_key, columns.data)
        return [place for place in places if place is not None]


def _texts(rows: pa.RecordBatch, place: int | None) -> list[str | None] | None:
    return None if place is None else rows.column(place).to_pylist()


def _keys(keys: Sequence[str | None] | None, count: int) -> list[str]:
    """Return the rows' keys. A row without a key gets a random one, which spreads such rows over the shards."""
    if keys is not None and None not in keys:
        return list(keys)  # type: ignore[arg-type]
    width = 2 * RANDOM_KEY_BYTES
    drawn = os.urandom(RANDOM_KEY_BYTES * count).hex()
    random = [drawn[width * row : width * (row + 1)] for row in range(count)]
    return random if keys is None else [key if key is not None else random[row] for row, key in enumerate(keys)]


def _with_ids(
    ids: RowIds,
    field: IdField,
    streams: Sequence[Any],
    keys: Sequence[str | None] | None,
    hash_keys: Sequence[str | None],
    data: Sequence[bytes],
) -> tuple[list[bytes], list[str | None]]:
    """Return the data with the ids inserted, and the keys.

    A row without a key gets its id as key, so that a repeat goes to the same shard.
    """
    given = keys if keys is not None else [None] * len(data)
    made = [ids.id_of(*row) for row in zip(streams, given, hash_keys, data, strict=True)]
    marked = [field.insert_id(one, row_id) for one, row_id in zip(data, made, strict=True)]
    return marked, [row_id if key is None else key for key, row_id in zip(given, made, strict=True)]


def _by_stream(streams: Sequence[str], records: Sequence[PendingRecord]) -> dict[str, list[PendingRecord]]:
    by_stream: dict[str, list[PendingRecord]] = defaultdict(list)
    for stream, record in zip(streams, records, strict=True):
        by_stream[stream].append(record)
    return dict(by_stream)
