"""Arrow columns as Spark needs them, built from whole batches."""

from __future__ import annotations

import pyarrow as pa
import pytest

from recordpublisher.plugins.spark.columns.arrow_rows import ARROW_SCHEMA, ROWS_PER_BATCH, ArrowRows, arrow_columns
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

SHARD = Shard("orders", "shardId-1")


def test_every_column_has_the_type_that_spark_compares():
    record = UserRecord(b"\x00\xff", "49", 1_700_000_000.123, "key", "17", 2)
    columns = arrow_columns(RecordBatch(SHARD, [record], event_times=[5]))
    assert columns.schema == ARROW_SCHEMA
    (row,) = columns.to_pylist()
    assert (row["stream"], row["shardId"], row["sequenceNumber"], row["subSequenceNumber"]) == (
        "orders",
        "shardId-1",
        "49",
        2,
    )
    assert (row["partitionKey"], row["explicitHashKey"], row["data"]) == ("key", "17", b"\x00\xff")
    assert row["approximateArrivalTimestamp"].timestamp() == 1_700_000_000.123
    assert row["eventTime"].timestamp() == 0.005


def test_s4_a_missing_partition_key_is_null():
    (row,) = arrow_columns(RecordBatch(SHARD, [UserRecord(b"", "1")])).to_pylist()
    assert (row["partitionKey"], row["explicitHashKey"]) == (None, None)


def test_an_event_time_beyond_sparks_range_is_null():
    times = [2**62, -(2**62), 0]
    records = [UserRecord(b"", str(n)) for n in range(3)]
    rows = arrow_columns(RecordBatch(SHARD, records, event_times=times)).to_pylist()
    assert [row["eventTime"] is None for row in rows] == [True, True, False]


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
    rows, other = ArrowRows(), Shard("orders", "shardId-2")
    for first in (0, 2):
        for shard in (SHARD, other):
            await rows.write(RecordBatch(shard, [UserRecord(b"x", str(first + n)) for n in range(2)]))

    assert rows.keep_until(SHARD.key, ("2", -1)) == 3
    left = [(row["shardId"], row["sequenceNumber"]) for row in rows.table().to_pylist()]
    assert sorted(left) == [("shardId-1", str(n)) for n in range(3)] + [("shardId-2", str(n)) for n in range(4)]
    assert rows.keep_until(SHARD.key, ("9", -1)) == 0
    assert len(rows) == 4


def test_batches_of_several_shards_become_the_columns_of_one():
    batches = [RecordBatch(Shard("orders", f"shardId-{n}"), [UserRecord(b"x", str(n))] * (n + 1)) for n in range(3)]
    together = arrow_columns(*batches)

    assert together.column("shardId").to_pylist() == ["shardId-0", *["shardId-1"] * 2, *["shardId-2"] * 3]
    assert together.column("sequenceNumber").to_pylist() == ["0", "1", "1", "2", "2", "2"]
    assert together.column("eventTime").equals(together.column("approximateArrivalTimestamp"))


@pytest.mark.parametrize("may_drop", [False, True])
async def test_only_the_chosen_columns_are_handed_over_also_where_rows_may_be_dropped(may_drop):
    schema = pa.schema([ARROW_SCHEMA.field("data"), ARROW_SCHEMA.field("shardId")])
    rows = ArrowRows(schema, may_drop=may_drop)
    await rows.write(RecordBatch(SHARD, [UserRecord(b"x", "1"), UserRecord(b"y", "2")]))
    if may_drop:
        assert rows.keep_until(SHARD.key, ("1", -1)) == 1
    (batch,) = rows.drain()
    assert batch.schema == schema
    assert batch.to_pydict()["data"] == [b"x", b"y"][: batch.num_rows]
    assert batch.num_rows == (1 if may_drop else 2)
