"""`flink.job.workers=GROUP` is refused with what it cannot be combined with, before anything runs (C2)."""

import pytest

import recordpublisher as rp
from recordpublisher.plugins.host.group_from_properties import group_from_properties
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties

from fakes.memory_store import MemoryStore


def elastic(tmp_path, **properties):
    return {
        "flink.job.workers": "GROUP",
        "flink.state.uri": str(tmp_path),
        "flink.stream.initpos": "TRIM_HORIZON",
        "aws.region": "us-east-1",
        **properties,
    }


def refused(properties, **arguments):
    with pytest.raises(ConfigurationError) as raised:
        rp.DataFetcher("orders", properties, **{"sink": rp.MemorySink(), **arguments})
    return str(raised.value)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("flink.state.uri", None, "'flink.state.uri' is required: a group keeps leases and positions there"),
        ("flink.state.uri", "sqlite:///group.db", "'flink.job.name' is required"),
        ("flink.state.uri", "hdfs://folder", "this library has no client of HDFS"),
        ("flink.watermark.lookahead.millis", 2_999, "Valid: at least 3000"),
        ("flink.watermark.tracker.timeout", 39_999, "Valid: at least 40000, twice flink.lease.duration"),
        ("flink.lease.duration", 1_999, "flink.lease.duration"),
    ],
)
def test_a_property_that_does_not_fit_is_named(tmp_path, key, value, named):
    assert named in refused(elastic(tmp_path, **{key: value}))


@pytest.mark.parametrize(
    ("argument", "value", "named"),
    [
        (
            "restore",
            {"version": 1},
            "setting 'restore' cannot be combined with 'flink.job.workers=GROUP': the store of the group keeps the positions",
        ),
    ],
)
def test_an_argument_that_does_not_fit_is_named(tmp_path, argument, value, named):
    assert named in refused(elastic(tmp_path), **{argument: value})


class KeepsPositions(rp.MemorySink):
    async def stored_positions(self):
        return []


def test_a_sink_that_keeps_positions_and_not_those_of_workers_is_refused(tmp_path):
    named = "KeepsPositions keeps positions next to its records, but is not a `CommittingSink`"
    assert named in refused(elastic(tmp_path), sink=KeepsPositions())


def test_a_sealed_worker_may_hold_the_watermark_for_longer_than_two_leases(tmp_path):
    properties = Properties(elastic(tmp_path, **{"flink.lease.duration": 30_000}))

    group = group_from_properties(properties, rp.MemorySink(), None, MemoryStore(), ())

    assert (group.settings.duration, group.settings.tracker_timeout) == (30.0, 90.0)


def test_positions_in_dynamodb_are_in_small_parts(tmp_path):
    properties = Properties(elastic(tmp_path, **{"flink.state.uri": "dynamodb://table/job"}))

    group = group_from_properties(properties, rp.MemorySink(), None, MemoryStore(), ())

    assert group.settings.shards_per_part == 16


def test_a_job_that_runs_alone_is_no_group(tmp_path):
    assert group_from_properties(Properties({"flink.state.uri": str(tmp_path)}), None, None, None, ()) is None
