"""What filters mean for a batch read: which shards are planned, and what is read of them."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringEndsWith,
)

from recordpublisher.plugins.spark.batch_read.arrivals import MARGIN_MS, Arrivals
from recordpublisher.plugins.spark.batch_read.batch_plan import ShardRange
from recordpublisher.plugins.spark.batch_read.positions import EndPosition
from recordpublisher.plugins.spark.batch_read.pushed_filters import PushedFilters
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.shards import Shard

STREAM, SHARD, ARRIVAL = ("stream",), ("shardId",), ("approximateArrivalTimestamp",)
END = EndPosition(1_900_000_000_000)
NOON_MS = 1_767_268_800_000
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def parts(start=None):
    return [ShardRange(Shard("s", name), start or StartingPosition.trim_horizon(), END) for name in "abc"]


def planned(*filters, start=None):
    pushed = PushedFilters()
    left = pushed(filters)
    return [part.shard.shard_id for part in pushed.narrowed(parts(start))], left


def arrivals_of(*filters):
    pushed = PushedFilters()
    assert pushed(filters) == list(filters)  # Spark compares the microseconds
    return pushed.arrivals


@pytest.mark.parametrize(
    ("given", "shards"),
    [
        (EqualTo(SHARD, "b"), "b"),
        (Not(EqualTo(SHARD, "b")), "ac"),
        (In(SHARD, ["a", "c", "x"]), "ac"),
        (GreaterThan(SHARD, "a"), "bc"),
        (StringEndsWith(SHARD, "c"), "c"),
        (IsNotNull(STREAM), "abc"),
        (EqualTo(STREAM, "t"), ""),
        (LessThanOrEqual(STREAM, "s"), "abc"),
    ],
)
def test_a_shard_that_cannot_match_is_not_planned_and_spark_has_nothing_left_to_do(given, shards):
    assert planned(given) == (list(shards), [])


@pytest.mark.parametrize(
    "given", [EqualTo(("data",), b"x"), In(SHARD, ["a", None]), EqualTo(SHARD, None), EqualTo(ARRIVAL, NOON)]
)
def test_what_is_not_decided_here_is_left_to_spark(given):
    assert planned(given) == (["a", "b", "c"], [given])


def test_arrival_times_narrow_what_is_read():
    after = NOON + timedelta(microseconds=1_999)
    assert arrivals_of(GreaterThan(ARRIVAL, NOON)) == Arrivals(NOON_MS, None)
    assert arrivals_of(LessThan(ARRIVAL, after), GreaterThanOrEqual(ARRIVAL, NOON)) == Arrivals(NOON_MS, NOON_MS + 2)
    assert arrivals_of(In(ARRIVAL, [after, NOON])) == Arrivals(NOON_MS, NOON_MS + 2)
    assert arrivals_of(EqualTo(ARRIVAL, NOON.astimezone(timezone(timedelta(hours=5))))) == Arrivals(
        NOON_MS, NOON_MS + 1
    )


@pytest.mark.parametrize(
    "given", [Not(EqualTo(ARRIVAL, NOON)), IsNotNull(ARRIVAL), EqualTo(("eventTime",), NOON), In(ARRIVAL, [])]
)
def test_other_filters_do_not(given):
    assert arrivals_of(given) == Arrivals()


def test_times_that_exclude_each_other_leave_no_task():
    assert planned(LessThan(ARRIVAL, NOON), GreaterThan(ARRIVAL, NOON + timedelta(hours=1)))[0] == []


def test_a_read_starts_a_margin_before_the_first_time_but_never_earlier_than_it_was_asked_to():
    pushed = PushedFilters()
    pushed([GreaterThan(ARRIVAL, NOON)])

    def starts(start):
        return pushed.narrowed(parts(start))[0].start

    at = StartingPosition.at_timestamp
    assert starts(StartingPosition.trim_horizon()) == at(NOON_MS - MARGIN_MS)
    assert starts(at(NOON_MS - MARGIN_MS - 1)) == at(NOON_MS - MARGIN_MS)
    assert starts(at(NOON_MS)) == at(NOON_MS)
    record = StartingPosition(PositionType.AT_SEQUENCE_NUMBER, "5")
    assert starts(record) == record


def test_spark_takes_it_for_a_reader_without_filters_where_they_are_off_and_pickles_it():
    pushed = PushedFilters()
    pushed([EqualTo(SHARD, "b")])
    assert pushed.__func__ is DataSourceReader.pushFilters
    assert [part.shard.shard_id for part in pickle.loads(pickle.dumps(pushed)).narrowed(parts())] == ["b"]
