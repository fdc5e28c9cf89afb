"""Why `spark.read` pushes no filters: Spark uses what one scan of a DataFrame has pushed for the next scans, which then miss rows."""

from __future__ import annotations

import pytest

from spark_jobs import shards_by_filter
from spark_jobs.queries import WAIT_SECONDS
from spark_jobs.shards_by_filter import SHARDS, ShardsByFilter

pytestmark = [pytest.mark.spark, pytest.mark.timeout(WAIT_SECONDS)]

MENDED = "PySpark no longer uses what another scan pushed, so spark.read may push filters: see docs/decisions/spark.md"


@pytest.fixture
def frame(spark):
    """A DataFrame over a source whose `pushFilters` is exact: it leaves out the shards that cannot match."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(shards_by_filter)  # Spark's Python processes do not find the folder of tests
    spark.dataSource.register(ShardsByFilter)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark.read.format("shards_by_filter").load()
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def shards_in(rows):
    return sorted(row.shard for row in rows.collect())


def test_one_filter_of_a_new_frame_is_pushed_and_exact(frame):
    assert shards_in(frame.filter("shard = 2")) == [2]
    assert frame.filter("shard = 2").rdd.getNumPartitions() == 1


@pytest.mark.parametrize("shard", range(SHARDS))
def test_the_next_action_on_the_frame_loses_the_rows_that_an_earlier_one_left_out(frame, shard):
    assert shards_in(frame.select("shard")) == list(range(SHARDS))
    assert shards_in(frame.filter(f"shard = {shard}")) == [shard]
    assert shards_in(frame.select("shard")) == [shard], MENDED


def test_two_filters_of_one_plan_both_read_for_the_second(frame):
    assert shards_in(frame.filter("shard = 1").union(frame.filter("shard = 3"))) == [3], MENDED
