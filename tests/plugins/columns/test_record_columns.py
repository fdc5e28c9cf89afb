"""Arrow columns as Spark needs them, built from whole batches."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest

from recordpublisher.plugins.columns.record_columns import (
    INSTANT,
    RECORD_SCHEMA,
    arrow_columns,
    binary_column,
    cast_instants,
    datetime_column,
    instant_column,
    number_column,
    repeated_column,
    text_column,
)
from recordpublisher.plugins.columns.record_fields import RECORD_FIELDS, SPARK_SCHEMA
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

from processes.command_line import ROOT, process_environment

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


MILLIS = pa.timestamp("ms", tz="UTC")
COLUMNS = """
import sys
import pyarrow
import recordpublisher.plugins.spark.source.task_read
import recordpublisher.publishers.polling
from recordpublisher.plugins.spark.arrow_rows import ReusedMemory
from recordpublisher.plugins.columns.record_columns import arrow_columns
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shards import Shard
records = [UserRecord(b"x", "1", 1.0, "k", None), UserRecord(b"", "2", 1.0, None, "5")]
arrow_columns(RecordBatch(Shard("s", "a"), records), joined=ReusedMemory().joined)
print(*sorted({"google.protobuf", "pandas", "pyarrow.compute", "recordpublisher.plugins.spark.source.kinesis_service"} & set(sys.modules)))
"""


def joined(parts):
    return b"".join(value for part in parts for value in part)


def same(made, values, kind):
    made.validate(full=True)
    assert made.equals(pa.array(values, kind))


@pytest.mark.parametrize(
    "texts", [[], ["a"], ["", "ab", ""], [None] * 9, ["a", None, "\u00fc\u4e2d"] * 9, ["z\u00fc", "\U0001f600", ""]]
)
def test_text(texts):
    same(text_column(texts), texts, pa.string())


@pytest.mark.parametrize("parts", [[[]], [[b""]], [[b"\x00\xff", b"", b"abc"]], [[b"a"], [], [b"bc", b"d"]]])
def test_bytes(parts):
    same(binary_column(parts, joined), [value for part in parts for value in part], pa.binary())


def test_repeated_text():
    same(repeated_column([("a", 2), ("\u00fc", 1), ("b", 0)]), ["a", "a", "\u00fc"], pa.string())


def test_numbers():
    same(number_column([-1, 2**62]), [-1, 2**62], pa.int64())


@pytest.mark.parametrize("column", [instant_column, cast_instants])
def test_times(column):
    same(column([], INSTANT), [], INSTANT)
    same(column([-5, 1_700_000_000_123], INSTANT), [-5_000, 1_700_000_000_123_000], INSTANT)
    same(column([-5, 1_700_000_000_123], MILLIS), [-5, 1_700_000_000_123], MILLIS)
    same(column([7, 2**62, -(2**62), 2**80] * 5, INSTANT), [7_000, None, None, None] * 5, INSTANT)


@pytest.mark.slow
class Subclass(datetime):
    """As pandas has one."""


AT = datetime(2026, 11, 27, 3, 4, 5, 678_901, UTC)


@pytest.mark.parametrize(
    "values",
    [
        [AT, None, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)],
        [
            AT.replace(tzinfo=timezone(timedelta(hours=-7, minutes=-30))),
            datetime.max.replace(tzinfo=timezone(-timedelta(hours=5))),
        ],
        [AT, AT.replace(tzinfo=None)],
        [AT.replace(tzinfo=None)],
        [Subclass(2026, 1, 1, tzinfo=UTC), AT],
        [None, None],
        [],
    ],
)
def test_datetimes(values):
    assert datetime_column(values).equals(pa.array(values, INSTANT))


@pytest.mark.parametrize("value", ["2026-11-27", timedelta(1)])
def test_what_is_no_datetime_is_refused_as_pyarrow_does(value):
    with pytest.raises((pa.ArrowException, TypeError)) as ours:
        datetime_column([AT, value])
    with pytest.raises(type(ours.value)) as theirs:
        pa.array([AT, value], INSTANT)
    assert str(ours.value) == str(theirs.value)


def test_a_task_imports_nothing_that_it_does_not_need():
    command = [sys.executable, "-c", COLUMNS]
    done = subprocess.run(command, env=process_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_spark_and_arrow_have_the_declared_columns_in_their_order():
    names = [field.name for field in RECORD_FIELDS]

    assert [column.split(" ")[0] for column in SPARK_SCHEMA.split(", ")] == names == RECORD_SCHEMA.names
    assert SPARK_SCHEMA.endswith(
        "subSequenceNumber LONG, approximateArrivalTimestamp TIMESTAMP, eventTime TIMESTAMP, data BINARY"
    )


def test_the_page_of_spark_lists_every_column():
    page = (ROOT / "docs/spark/README.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("Columns: ")]

    assert re.findall(r"`(\w+)`", line) == [field.name for field in RECORD_FIELDS]
