"""Arrow columns made of buffers: the same as pyarrow's own, without what those import."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest

from recordpublisher.plugins.columns.column_buffers import (
    INSTANT,
    binary_column,
    cast_instants,
    datetime_column,
    instant_column,
    number_column,
    repeated_column,
    text_column,
)

from processes.command_line import process_environment

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
print(*sorted({"google.protobuf", "pandas", "pyarrow.compute", "recordpublisher.plugins.spark.service.kinesis_service"} & set(sys.modules)))
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
