"""Mode CONTINUOUS while a service is away: the fetcher is started again, planning and tasks wait, for `maxOutage` at most."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from dataclasses import replace
from typing import Any

import pytest

from recordpublisher.plugins.spark.continuous.back_pressure import BackPressure
from recordpublisher.plugins.spark.continuous.driver_fetcher import DriverFetcher
from recordpublisher.plugins.spark.continuous.query_driver import QueryDriver
from recordpublisher.plugins.spark.continuous.row_file import rows_of
from recordpublisher.plugins.spark.continuous.stream_reader import ContinuousPartition, ContinuousStreamReader
from recordpublisher.plugins.spark.continuous.wal_offset import WalOffset
from recordpublisher.plugins.spark.continuous.wal_planner import WalPlanner
from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.spark.outages import OutageWatch
from recordpublisher.plugins.spark.python_worker import worker_loop
from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import OutageError, StateError, StoreUnavailableError
from recordpublisher.publishers.shards import Shard

from fakes.memory_store import MemoryStore
from fakes.spark.continuous import NO_LIMIT, opened
from fakes.spark.simulated_kinesis import ManualClock
from fakes.spark.simulated_query import NoAnswer
from spark_jobs.queries import Kinesis

NAMES = itertools.count()
AWAY = StoreUnavailableError("GetObject at s3://b failed")


class Fallible(MemoryStore):
    """Reads and lists fail while `failure` is set, or for the number of `failures`."""

    failure: Exception | None = None
    failures: int | None = None

    async def get(self, name):
        self._raise()
        return await super().get(name)

    async def list_names(self, prefix, before=None):
        self._raise()
        return await super().list_names(prefix, before)

    async def list_versions(self, prefix):
        self._raise()
        return await super().list_versions(prefix)

    def _raise(self):
        if self.failure is None or self.failures == 0:
            return
        if self.failures is not None:
            self.failures -= 1
        raise self.failure


class Idle:
    """A fetcher that does nothing."""

    outage = None

    def __init__(self) -> None:
        self.figures: dict[str, object] = {}

    def start(self, stop_at_tip: bool) -> None: ...

    def has_ended(self) -> bool:
        return False


@pytest.fixture
def memory() -> Fallible:
    return Fallible()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def driver(memory, clock) -> QueryDriver:
    return driver_over(memory, clock)


def driver_over(memory, clock, **more: Any) -> QueryDriver:
    options = SparkOptions.parse({"stream": "s", "metadataLocation": "/wal", "mode": "continuous"})
    planner = WalPlanner(WriteOnceStore(memory), clock, 1)
    return QueryDriver(options, planner, Idle(), BackPressure(NO_LIMIT), worker_loop(), clock.sleep, **more)


async def fill(memory) -> None:
    await (await opened(WriteOnceStore(memory), [Shard("s", "a")])).read_all(5)


def plan_later(driver, clock, start):
    """What is planned when the longest pause between two tries is over."""
    clock.sleep(11)
    return driver.next_offset(start, None)


def test_planning_goes_on_with_the_old_offset_and_the_progress_shows_the_outage(driver, memory, clock):
    start = driver.initial_offset()
    asyncio.run(fill(memory))
    memory.failure = AWAY
    assert driver.next_offset(start, None) == start
    assert driver.figures["outage"]["service"] == "the store of claims"
    memory.failure = None
    assert plan_later(driver, clock, start).records == 5
    assert "outage" not in driver.figures


def test_past_the_longest_outage_of_the_store_the_query_fails(driver, memory, clock):
    start = driver.initial_offset()
    memory.failure = AWAY
    assert driver.next_offset(start, None) == start
    clock.sleep(600)
    with pytest.raises(OutageError, match=r"^the store of claims is away since"):
        driver.next_offset(start, None)


def test_a_query_that_begins_while_its_store_is_away_learns_later_which_log_it_reads(driver, memory, clock):
    memory.failure = AWAY
    start = driver.initial_offset()
    assert driver.next_offset(start, None) == start
    assert driver.files(start, start) == []  # Spark runs a batch up to the first offset
    memory.failure = None
    asyncio.run(fill(memory))
    end = plan_later(driver_over(memory, clock), clock, WalOffset.from_json(start.to_json()))
    assert end.records == 5
    assert end.wal == driver_over(memory, clock).initial_offset().wal
    assert (start.wal, end.query) == ("", start.query)


def test_a_store_that_never_answers_keeps_nobody_waiting_and_counts_as_an_outage(memory, clock):
    driver = driver_over(memory, clock, background=NoAnswer(clock))
    began = clock.monotonic()
    start = driver.initial_offset()
    assert clock.monotonic() - began < 5
    for call in [lambda: driver.next_offset(start, None), lambda: driver.files(start, replace(start, entry=3))] * 3:
        began = clock.monotonic()
        call()
        assert clock.monotonic() - began < 5
    assert "no answer" in driver.figures["outage"]["error"]


def test_available_now_gets_batches_without_files_while_the_store_is_away(driver, memory, clock):
    start = driver.initial_offset()
    asyncio.run(fill(memory))
    driver.prepare_available_now()
    memory.failure = AWAY
    waiting = start
    for waits in range(1, 4):
        began = clock.monotonic()
        end = driver.next_offset(waiting, None)
        assert clock.monotonic() - began < 5
        assert end == replace(start, waits=waits)
        assert driver.files(waiting, end) == []
        waiting = WalOffset.from_json(json.loads(json.dumps(end.to_json())))
    memory.failure = None
    read = driver.next_offset(waiting, None)
    while read.waits:  # until the pause between two tries is over
        read = driver.next_offset(read, None)
    assert read.records == 5


def test_an_error_that_is_no_outage_ends_the_query_at_once(driver, memory):
    start = driver.initial_offset()
    memory.failure = StateError("GetObject failed with AccessDenied")
    with pytest.raises(StateError, match="AccessDenied"):
        driver.next_offset(start, None)


def test_a_batch_from_before_a_restart_is_looked_for_by_its_task_while_the_store_is_away(driver, memory, clock):
    start = driver.initial_offset()
    asyncio.run(fill(memory))
    end = driver.next_offset(start, None)
    planned = driver.files(start, end)
    memory.failure = AWAY
    again = driver_over(memory, clock)
    assert again.files(start, end) is None
    assert again.figures["outage"]["service"] == "the store of claims"
    memory.failures = 1
    options = SparkOptions.parse({"stream": "s", "metadataLocation": "/wal", "mode": "continuous"})
    reader = ContinuousStreamReader(options)
    reader._store = lambda: WriteOnceStore(memory)
    rows = [batch.num_rows for batch in reader.read(ContinuousPartition(start, end, None))]
    assert (sum(rows), memory.failures) == (5, 0)
    assert sum(file.rows for file in planned) == 5


def test_a_task_waits_for_its_files(driver, memory):
    start = driver.initial_offset()
    asyncio.run(fill(memory))
    files = driver.files(start, driver.next_offset(start, None))
    memory.failure = AWAY
    watch = OutageWatch(600_000)
    waited = []

    def come_back(seconds):
        waited.append(seconds)
        memory.failure = None

    patient = watch.wait_out
    watch.wait_out = lambda call: patient(call, come_back)
    rows = [batch.num_rows for batch in rows_of(files, WriteOnceStore(memory), worker_loop(), "/wal", watch)]
    assert (sum(rows), len(waited)) == (5, 1)


def fetcher_of(served, tmp_path, memory, **more) -> tuple[Kinesis, DriverFetcher]:
    stream = Kinesis(served, f"continuous-away-{next(NAMES)}", 1)
    given = {"mode": "continuous", "walRollInterval": 50, "flink.shard.getrecords.maxretries": 0, **more}
    options = SparkOptions.parse(stream.options(tmp_path, **given))
    store = WriteOnceStore(memory)
    return stream, DriverFetcher(options, store, BackPressure(NO_LIMIT), worker_loop(), SystemClock())


def wait_until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_fetcher_that_an_outage_ends_is_started_again(served, tmp_path, memory, driver):
    stream, fetcher = fetcher_of(served, tmp_path, memory)
    stream.put(20)
    start = driver.initial_offset()
    fetcher.start(stop_at_tip=False)
    wait_until(lambda: driver.next_offset(start, None).records == 20)
    served.call(served.endpoint.faults.start_random, "reset")
    try:
        stream.put(10)
        wait_until(lambda: fetcher.outage is not None)
        assert not fetcher.has_ended()
    finally:
        served.call(served.endpoint.faults.stop_random)
    wait_until(lambda: driver.next_offset(start, None).records == 30)


def test_a_fetcher_ends_the_query_past_the_longest_outage(served, tmp_path, memory):
    _, fetcher = fetcher_of(served, tmp_path, memory, maxOutage=0)
    served.call(served.endpoint.faults.start_random, "reset")
    try:
        fetcher.start(stop_at_tip=False)
        with pytest.raises(OutageError, match=r"^Kinesis is away since"):
            wait_until(fetcher.has_ended)
    finally:
        served.call(served.endpoint.faults.stop_random)
