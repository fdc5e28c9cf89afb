"""The driver's side as Spark calls it, and the task that reads the files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from recordpublisher.plugins.spark.continuous.back_pressure import BackPressure
from recordpublisher.plugins.spark.continuous.query_driver import QueryDriver
from recordpublisher.plugins.spark.continuous.row_file import StoredFile, rows_of
from recordpublisher.plugins.spark.continuous.wal_offset import WalOffset
from recordpublisher.plugins.spark.continuous.wal_planner import WalPlanner
from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.spark.python_worker import worker_loop
from recordpublisher.plugins.stores.folder import FolderStore
from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.errors import ConfigurationError, FencedError, StateError
from recordpublisher.publishers.shards import Shard

from fakes.spark.continuous import CLOCK, NO_LIMIT, opened

SHARDS = [Shard("s", "a"), Shard("s", "b"), Shard("s", "c")]


class ScriptedFetcher:
    """A fake fetcher: appends at the second call, has ended at the third."""

    def __init__(self, store: WriteOnceStore, error: Exception | None = None) -> None:
        self._store = store
        self._error = error
        self.calls = 0
        self.is_bounded = False
        self.outage = None
        self.figures = {"shards": 3}

    def start(self, stop_at_tip: bool) -> None:
        self.is_bounded = stop_at_tip

    def has_ended(self) -> bool:
        if self._error is not None:
            raise self._error
        self.calls += 1
        if self.calls == 2:
            asyncio.run(fill(self._store))
        return self.calls > 2


async def fill(store: WriteOnceStore) -> None:
    fetcher = await opened(store, SHARDS)
    await fetcher.read_all(5)
    await fetcher.read_all(8)


@pytest.fixture
def store(tmp_path: Path) -> WriteOnceStore:
    return WriteOnceStore(FolderStore(tmp_path))


def driver_of(store: WriteOnceStore, fetcher: ScriptedFetcher | None = None, **more: object) -> QueryDriver:
    given = {"stream": "s", "metadataLocation": "/wal", "mode": "continuous", **more}
    options = SparkOptions.parse({key: str(value) for key, value in given.items()})
    pressure, planner = BackPressure(NO_LIMIT), WalPlanner(store, CLOCK, 1)
    fetcher = fetcher or ScriptedFetcher(store)
    return QueryDriver(options, planner, fetcher, pressure, worker_loop(), sleep=lambda seconds: None)


def test_without_new_rows_there_is_no_batch_until_some_arrive(store):
    driver = driver_of(store)
    start = driver.initial_offset()
    assert driver.next_offset(start, None) == start
    assert driver.next_offset(start, None).records == 24


def test_the_rows_of_a_shard_are_returned_in_order(store):
    asyncio.run(fill(store))
    driver = driver_of(store)
    start = driver.initial_offset()
    end = driver.next_offset(start, None)
    files = driver.files(start, end)
    assert [file.rows for file in files] == [15, 9]
    assert driver.files(end, end) == []
    rows = [row for batch in rows_of(files, store, worker_loop(), "/wal") for row in batch.to_pylist()]
    for shard in SHARDS:
        assert [int(row["sequenceNumber"]) for row in rows if row["shardId"] == shard.shard_id] == list(range(8))


def test_bytes_of_a_batch_are_limited_approximately(store):
    asyncio.run(fill(store))
    driver = driver_of(store, maxBytesPerBatch=1)
    assert driver.next_offset(driver.initial_offset(), None).records == 15


def test_available_now_waits_until_the_fetcher_has_reached_the_tips(store):
    fetcher = ScriptedFetcher(store)
    driver = driver_of(store, fetcher)
    driver.prepare_available_now()
    end = driver.next_offset(driver.initial_offset(), None)
    assert fetcher.is_bounded
    assert end.records == 24
    assert driver.next_offset(end, None) == end
    assert fetcher.calls > 2


def test_an_error_of_the_fetcher_ends_the_query(store):
    driver = driver_of(store, ScriptedFetcher(store, FencedError("another start")))
    with pytest.raises(FencedError, match="another start"):
        driver.next_offset(driver.initial_offset(), None)


def test_a_commit_never_fails_the_query(store, caplog):
    driver = driver_of(store)
    for _ in range(3):
        driver.commit(WalOffset("wal", "query", 1, 1, 5))


def test_a_task_that_cannot_see_the_drivers_log_is_an_error(store, tmp_path):
    loop, files = worker_loop(), [StoredFile("files/x", 5)]
    with pytest.raises(ConfigurationError, match="a task cannot see the driver's write-ahead log"):
        list(rows_of(files, WriteOnceStore(FolderStore(tmp_path / "elsewhere")), loop, "/wal"))
    driver_of(store).initial_offset()
    with pytest.raises(StateError, match="files/x of the write-ahead log is gone"):
        list(rows_of(files, store, loop, "/wal"))


def test_a_file_with_another_number_of_rows_than_its_entry_is_an_error(store):
    asyncio.run(fill(store))
    driver = driver_of(store)
    start = driver.initial_offset()
    file, *_ = driver.files(start, driver.next_offset(start, None))
    with pytest.raises(StateError, match="has 15 rows, its entry says 14"):
        list(rows_of([StoredFile(file.name, 14)], store, worker_loop(), "/wal"))
