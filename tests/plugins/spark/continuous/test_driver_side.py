"""The driver's side as Spark calls it, and the task that hands files over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from recordpublisher.plugins.spark.continuous.driver_side import DriverSide
from recordpublisher.plugins.spark.continuous.offset import SpoolOffset
from recordpublisher.plugins.spark.continuous.planner import SpooledFile, SpoolPlanner
from recordpublisher.plugins.spark.continuous.task import rows_of
from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.spark.python_worker import worker_loop
from recordpublisher.plugins.stores.file.object_store import FolderObjects
from recordpublisher.publishers.errors import ConfigurationError, FencedError, StateError
from recordpublisher.publishers.shards import Shard

from fakes.spark_continuous import CLOCK, Fetcher, opened

SHARDS = [Shard("s", "a"), Shard("s", "b"), Shard("s", "c")]


class FetcherElsewhere:
    """Stands for the fetcher in the driver: puts its records at the second look, has ended at the third."""

    def __init__(self, store: FolderObjects, error: Exception | None = None) -> None:
        self._store = store
        self._error = error
        self.looks = 0
        self.is_bounded = False

    def stop_at_tip(self) -> None:
        self.is_bounded = True

    def look(self) -> bool:
        if self._error is not None:
            raise self._error
        self.looks += 1
        if self.looks == 2:
            asyncio.run(fill(self._store, 1))
        return self.looks > 2


async def fill(store: FolderObjects, lanes: int) -> None:
    generation = await opened(store, lanes)
    for lane in range(lanes):
        fetcher = Fetcher(store, generation, lane, SHARDS)
        await fetcher.open()
        await fetcher.read_all(5)
        await fetcher.read_all(8)


@pytest.fixture
def store(tmp_path: Path) -> FolderObjects:
    return FolderObjects(tmp_path)


def side(store: FolderObjects, fetcher: FetcherElsewhere | None = None, **more: object) -> DriverSide:
    given = {"stream": "s", "metadataLocation": "/spool", "mode": "continuous", **more}
    options = SparkOptions.parse({key: str(value) for key, value in given.items()})
    return DriverSide(options, SpoolPlanner(store, CLOCK, 1), fetcher, worker_loop(), sleep=lambda seconds: None)


def test_nothing_new_is_none_and_is_asked_again(store):
    driver = side(store)
    assert driver.next_offset(driver.initial_offset(), None) is None
    asyncio.run(fill(store, 1))
    assert driver.next_offset(driver.initial_offset(), None).records == 24


def test_lanes_are_dealt_over_tasks_and_stay_in_order(store):
    asyncio.run(fill(store, 3))
    driver = side(store, maxTasks=2)
    start = driver.initial_offset()
    end = driver.next_offset(start, None)
    tasks = driver.tasks(start, end)
    assert [[file.rows for file in task] for task in tasks] == [[5, 3, 5, 3], [5, 3]]
    assert driver.tasks(end, end) == []
    loop, location = worker_loop(), "/spool"
    rows = [row for task in tasks for batch in rows_of(task, store, loop, location) for row in batch.to_pylist()]
    assert {row["shardId"] for row in rows} == {"a", "b", "c"}
    for shard in SHARDS:
        assert [int(row["sequenceNumber"]) for row in rows if row["shardId"] == shard.shard_id] == list(range(8))


def test_bytes_of_a_batch_are_limited_about(store):
    asyncio.run(fill(store, 1))
    driver = side(store, maxBytesPerBatch=1)
    assert driver.next_offset(driver.initial_offset(), None).records == 15


def test_available_now_waits_for_the_fetcher_in_the_driver_and_for_no_other(store):
    fetcher = FetcherElsewhere(store)
    driver = side(store, fetcher)
    driver.prepare_available_now()
    assert fetcher.is_bounded
    end = driver.next_offset(driver.initial_offset(), None)
    assert end.records == 24
    assert driver.next_offset(end, None) is None
    assert fetcher.looks > 2
    alone = side(store)
    alone.prepare_available_now()
    assert alone.next_offset(end, None) is None


def test_what_the_fetcher_in_the_driver_died_of_ends_the_query(store):
    driver = side(store, FetcherElsewhere(store, FencedError("a newer start")))
    with pytest.raises(FencedError, match="a newer start"):
        driver.next_offset(driver.initial_offset(), None)


def test_a_commit_never_fails_the_query(store, caplog):
    driver = side(store)
    offset = SpoolOffset("spool", "query", 1, 1, (1,), 5)
    for _ in range(3):
        driver.commit(offset)


def test_a_task_that_does_not_see_the_drivers_spool_says_so(store, tmp_path):
    loop, files = worker_loop(), [SpooledFile("files/x", 5)]
    with pytest.raises(ConfigurationError, match="a task cannot see the driver's spool"):
        list(rows_of(files, FolderObjects(tmp_path / "elsewhere"), loop, "/spool"))
    side(store).initial_offset()
    with pytest.raises(StateError, match="files/x is gone"):
        list(rows_of(files, store, loop, "/spool"))


def test_a_file_with_other_rows_than_its_manifest_says_is_an_error(store):
    asyncio.run(fill(store, 1))
    driver = side(store)
    start = driver.initial_offset()
    ((file, *_),) = driver.tasks(start, driver.next_offset(start, None))
    with pytest.raises(StateError, match="has 15 rows, its manifest says 14"):
        list(rows_of([SpooledFile(file.name, 14)], store, worker_loop(), "/spool"))
