"""RowBuffer: the rows that SparkSink has collected and not delivered yet, by shard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ..arrow_rows import ARROW_SCHEMA, arrow_columns
from .delivery_log import RowRange


class RowBuffer:
    """Owns the collected rows. The first `skip[key]` rows of a shard are dropped: a batch before the restart delivered them."""

    def __init__(self, skip: Mapping[str, int]) -> None:
        self.skip = {key: count for key, count in skip.items() if count}
        self.bytes = 0
        self._rows: dict[str, list[pa.RecordBatch]] = {}

    def add(self, batch: Any) -> None:
        """Collect a RecordBatch of one shard."""
        key = batch.shard.key
        dropped = min(self.skip.get(key, 0), len(batch))
        if dropped:
            self.skip[key] -= dropped
            self.skip = {each: count for each, count in self.skip.items() if count}
        if dropped < len(batch):
            self._rows.setdefault(key, []).append(arrow_columns(batch).slice(dropped))
            self.bytes += batch.raw_bytes

    def __len__(self) -> int:
        return sum(self.counts().values())

    def counts(self) -> dict[str, int]:
        """Rows by shard."""
        return {key: sum(rows.num_rows for rows in batches) for key, batches in self._rows.items()}

    def holds(self, wanted: Mapping[str, int]) -> bool:
        """Whether that many rows of each shard are there."""
        counts = self.counts()
        return all(counts.get(key, 0) >= count for key, count in wanted.items())

    def take(self, wanted: Mapping[str, int]) -> tuple[pa.Table, dict[str, RowRange]]:
        """Remove and return the first `wanted` rows of each shard, sorted by shard, so that the same rows always have the same order."""
        taken = {}
        for key, count in sorted(wanted.items()):
            rows = pa.Table.from_batches(self._rows.pop(key), schema=ARROW_SCHEMA)
            taken[key] = rows.slice(0, count)
            if count < rows.num_rows:
                self._rows[key] = rows.slice(count).to_batches()
        self.bytes = 0 if not self._rows else self.bytes
        return pa.concat_tables(taken.values()), {key: _range_of(rows) for key, rows in taken.items()}


def _range_of(rows: pa.Table) -> RowRange:
    sequences, subs = rows["sequenceNumber"], rows["subSequenceNumber"]
    return (rows.num_rows, sequences[0].as_py(), subs[0].as_py(), sequences[-1].as_py(), subs[-1].as_py())
