"""Queries on Spark 4.0 and 4.1, which does not say where a query stands: each row once, wherever the driver is killed."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recordpublisher.plugins.spark.source.offset import BatchOffset
from recordpublisher.plugins.spark.source.patient_planner import ANSWER_SECONDS
from recordpublisher.plugins.spark.stream_reader import ReaderWithStart
from recordpublisher.plugins.spark.version_dependent_names import ReadAllAvailable
from recordpublisher.publishers.errors import ConfigurationError, StateError, TransientError

from fakes.spark.legacy_query import FixedOptions, KilledError, LegacyQuery, killed_after
from fakes.spark.queries import FROM_LATEST, options, two_shards
from fakes.spark.simulated_kinesis import ARRIVED, MemoryClaims
from fakes.spark.worlds import check_exactly_once, worlds

lives = st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.booleans()), max_size=12)
"""Of each driver: after how many calls it is killed, whether its trigger is AvailableNow, and whether records arrive after it."""


@pytest.fixture(autouse=True, scope="module")
def heap() -> Iterator[None]:
    """A reader freezes the heap of its process."""
    yield
    gc.unfreeze()


@pytest.fixture
def query(tmp_path) -> LegacyQuery:
    return LegacyQuery(two_shards(), MemoryClaims(), options(tmp_path))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(), st.one_of(st.none(), st.integers(1, 7)), st.integers(1, 3), lives)
def test_every_row_once_wherever_the_driver_is_killed(kinesis, limit, tasks, lives):
    query = LegacyQuery(kinesis, MemoryClaims(), options(Path("memory"), max_records=limit, max_tasks=tasks))
    for calls, is_available_now, has_new_records in lives:
        query.between_calls = killed_after(calls)
        with suppress(KilledError):
            query.run_available_now() if is_available_now else query.run(5)
        if has_new_records:
            put_into_open_shards(kinesis)
    query.between_calls = lambda: None
    batches = 2
    while batches > 1:  # the first one of each driver
        batches = -len(query.offsets)
        query.run(40)
        batches += len(query.offsets)
    check_exactly_once(query.delivered(), kinesis)


def test_p3_latest_is_the_time_of_the_start_also_if_kinesis_was_away_then(tmp_path):
    query = LegacyQuery(two_shards(), MemoryClaims(), options(tmp_path, **FROM_LATEST))
    query.kinesis.clock.ms = ARRIVED + 2
    query.kinesis.failure = TransientError("ListShards", "ConnectionError", "refused")
    query.run(1)
    query.kinesis.clock.ms += 30_000
    query.kinesis.failure = None
    query.run(3)
    assert query.delivered() == [("s/a", "3")]


def put_into_open_shards(kinesis) -> None:
    for simulated in kinesis.shards.values():
        if not simulated.closed:
            simulated.times.append(max(simulated.times, default=0) + 1)


@pytest.fixture
def at_latest(tmp_path) -> LegacyQuery:
    """A query that began at LATEST, before the third record of a shard of three; it has read that one."""
    query = LegacyQuery(two_shards(), MemoryClaims(), options(tmp_path, **FROM_LATEST))
    query.kinesis.clock.ms = ARRIVED + 2
    query.run(3)
    assert query.delivered() == [("s/a", "3")]
    return query


def test_a_query_that_began_at_latest_goes_on_where_it_stands(at_latest):
    put_into_open_shards(at_latest.kinesis)
    at_latest.run_available_now()
    assert at_latest.delivered() == [("s/a", "3"), ("s/a", "4")]


def test_the_wrapper_of_available_now_is_refused_before_its_plan_is_logged(at_latest):
    put_into_open_shards(at_latest.kinesis)
    before = list(at_latest.offsets)
    words = r"triggerAvailableNowWrapper.enabled' is 'true': if it is true, PySpark 4\.0 and 4\.1 .*. Valid: false"
    with pytest.raises(ConfigurationError, match=words):
        at_latest.run(1, has_wrapper=True)
    assert at_latest.offsets == before
    at_latest.run_available_now()
    assert at_latest.delivered() == [("s/a", "3"), ("s/a", "4")]


def test_the_wrapper_does_no_harm_to_a_query_that_begins(query):
    query.run(3, has_wrapper=True)
    check_exactly_once(query.delivered(), query.kinesis)


def test_a_start_that_spark_does_not_tell_is_found_before_anything_is_read(query):
    query.run(3)
    reader = query._new_reader()
    planned = reader.latestOffset()
    with pytest.raises(StateError, match="was planned after another one"):
        reader.partitions(json.loads(query.offsets[-1]), planned)


def test_a_run_of_one_batch_reads_what_arrived_although_nothing_has_looked_for_it(query):
    query.run_available_now()
    put_into_open_shards(query.kinesis)
    query.run_available_now()
    check_exactly_once(query.delivered(), query.kinesis)


def test_a_run_of_one_batch_waits_for_a_service_as_long_as_an_answer_may_take(query):
    query.run_available_now()
    put_into_open_shards(query.kinesis)
    kinesis, planned = query.kinesis, len(query.offsets)
    kinesis.failure, began = TransientError("GetRecords", "ConnectionError", "refused"), kinesis.clock.ms
    query.run_available_now()
    assert len(query.offsets) == planned
    assert ANSWER_SECONDS * 1000 <= kinesis.clock.ms - began <= ANSWER_SECONDS * 1000 + 1000


def test_a_query_that_begins_while_a_service_is_away_reads_later(query):
    query.kinesis.failure = TransientError("ListShards", "ConnectionError", "refused")
    for _ in range(2):
        query.run(2)
    assert len(query.offsets) == 1
    query.kinesis.failure = None
    query.kinesis.clock.ms += 60_000
    query.run(5)
    check_exactly_once(query.delivered(), query.kinesis)


def test_the_rows_of_a_batch_are_limited_by_the_option(tmp_path):
    query = LegacyQuery(two_shards(), MemoryClaims(), options(tmp_path, max_records=2))
    query.run(10)
    assert [len(rows) for rows in query.sink.values() if rows] == [2, 1, 1]


def test_a_plan_carries_the_figures_and_an_offset_of_before_is_given_as_it_was(query):
    for _ in range(2):
        planned = len(query.offsets)
        query.run(3)
        assert len(query.offsets) == planned + 1  # the first batch of a process, and none after it
    assert json.loads(query.offsets[-1])["figures"]["records"] == 4


def test_a_newer_spark_goes_on_with_the_checkpoint(query):
    query.run(10)
    put_into_open_shards(query.kinesis)
    query.run(10)
    last = json.loads(query.offsets[-1])
    reader = ReaderWithStart(FixedOptions(query.options), None, query._new_reader()._planner)
    assert reader.partitions(json.loads(query.offsets[-2]), last)
    assert reader.latestOffset(last, ReadAllAvailable()) is last
    put_into_open_shards(query.kinesis)
    reader.latestOffset(last, ReadAllAvailable())
    planned = reader.latestOffset(last, ReadAllAvailable())
    assert BatchOffset.from_json(planned).follows(BatchOffset.from_json(last))
