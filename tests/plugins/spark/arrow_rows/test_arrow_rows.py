"""Rows of a window as Arrow columns, and what a claim knows of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA
from recordpublisher.plugins.spark.arrow_rows import ROWS_PER_BATCH, ArrowRows
from recordpublisher.plugins.spark.row_columns import RowColumns
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

SHARD = Shard("orders", "shardId-1")


async def test_many_small_batches_become_few_large_ones():
    rows = ArrowRows()
    for n in range(300):
        await rows.write(RecordBatch(SHARD, [UserRecord(b"x", str(n * 100 + m)) for m in range(100)]))
    sizes = [batch.num_rows for batch in rows.drain()]
    assert sizes == [ROWS_PER_BATCH, 10_000]


async def test_rows_are_counted_for_the_claim():
    rows = ArrowRows()
    await rows.write(RecordBatch(SHARD, [UserRecord(b"x", "1"), UserRecord(b"x", "2", sub_sequence_number=3)]))
    await rows.write(RecordBatch(SHARD, []))
    assert (rows.counts, rows.first, rows.last) == ({SHARD.key: 2}, {SHARD.key: ("1", -1)}, {SHARD.key: ("2", 3)})


async def test_keep_until_drops_the_later_rows_of_one_shard():
    rows, other = ArrowRows(may_drop=True), Shard("orders", "shardId-2")
    for first in (0, 2):
        for shard in (SHARD, other):
            await rows.write(RecordBatch(shard, [UserRecord(b"x", str(first + n)) for n in range(2)]))

    assert rows.keep_until(SHARD.key, ("2", -1)) == 3
    left = [(row["shardId"], row["sequenceNumber"]) for row in rows.table().to_pylist()]
    assert sorted(left) == [("shardId-1", str(n)) for n in range(3)] + [("shardId-2", str(n)) for n in range(4)]
    assert rows.keep_until(SHARD.key, ("9", -1)) == 0
    assert len(rows) == 4


@pytest.mark.parametrize("may_drop", [False, True])
async def test_only_the_chosen_columns_are_handed_over_also_where_rows_may_be_dropped(may_drop):
    schema = pa.schema([RECORD_SCHEMA.field("data"), RECORD_SCHEMA.field("shardId")])
    rows = ArrowRows(RowColumns(schema), may_drop=may_drop)
    await rows.write(RecordBatch(SHARD, [UserRecord(b"x", "1"), UserRecord(b"y", "2")]))
    if may_drop:
        assert rows.keep_until(SHARD.key, ("1", -1)) == 1
    (batch,) = rows.drain()
    assert batch.schema == schema
    assert batch.to_pydict()["data"] == [b"x", b"y"][: batch.num_rows]
    assert batch.num_rows == (1 if may_drop else 2)
