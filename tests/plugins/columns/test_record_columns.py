"""Arrow columns as Spark needs them, built from whole batches."""

from __future__ import annotations

from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA, arrow_columns
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

SHARD = Shard("orders", "shardId-1")


def test_every_column_has_the_type_that_spark_compares():
    record = UserRecord(b"\x00\xff", "49", 1_700_000_000.123, "key", "17", 2)
    columns = arrow_columns(RecordBatch(SHARD, [record], event_times=[5]))
    assert columns.schema == RECORD_SCHEMA
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


def test_batches_of_several_shards_become_the_columns_of_one():
    batches = [RecordBatch(Shard("orders", f"shardId-{n}"), [UserRecord(b"x", str(n))] * (n + 1)) for n in range(3)]
    together = arrow_columns(*batches)

    assert together.column("shardId").to_pylist() == ["shardId-0", *["shardId-1"] * 2, *["shardId-2"] * 3]
    assert together.column("sequenceNumber").to_pylist() == ["0", "1", "1", "2", "2", "2"]
    assert together.column("eventTime").equals(together.column("approximateArrivalTimestamp"))
