"""The figures of mode CONTINUOUS: of its batches, and of its fetcher, under the names of mode BATCH."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.spark.continuous.back_pressure import BackPressure
from recordpublisher.plugins.spark.continuous.wal_fetcher import WalFetcher
from recordpublisher.plugins.spark.continuous.wal_offset import WalOffset
from recordpublisher.plugins.spark.continuous.wal_planner import Limits, WalPlanner
from recordpublisher.plugins.spark.listeners.progress_metrics import PROGRESS_METRICS
from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.spark.source.batch_offset import BatchOffset
from recordpublisher.plugins.spark.source.batch_progress import QueryProgress
from recordpublisher.plugins.stores.folder import FolderStore
from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.shards import Shard

from fakes.spark.continuous import MemoryWriteOnceStore, opened
from fakes.spark.simulated_kinesis import ManualClock
from spark_jobs.queries import Kinesis

SHARDS = [Shard("s", "a"), Shard("s", "b")]
NAMES = itertools.count()
HOUR_MS = 3_600_000


@dataclass
class MovedClock(SystemClock):
    """The system's clock, some milliseconds ahead."""

    ahead_ms: int = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def stream(clock):
    with serve_in_thread(clock=clock) as served:
        yield Kinesis(served, f"progress-{next(NAMES)}", 2)


async def test_figures_describe_the_planned_batch_and_the_one_before():
    clock, store = ManualClock(), MemoryWriteOnceStore()
    fetcher = await opened(store, SHARDS)
    await fetcher.read_all(5)
    await fetcher.read_all(6)
    planner = WalPlanner(store, clock, 1)
    first = await planner.next_offset(await planner.initial_offset(), Limits(rows=10))
    shown = {"batch": 1, "files": 1, "records": 10, "bytes": 50, "waitingRecords": 2, "lastBatchRecords": None}
    assert planner.figures == {**planner.figures, **shown}
    clock.sleep(4)
    second = await planner.next_offset(first, Limits(rows=10))
    shown = {"batch": 2, "records": 12, "bytes": 60, "waitingRecords": 0, "lastBatchRecords": 10, "lastBatchBytes": 50}
    rates = {"recordsPerSecond": 2.5, "bytesPerSecond": 12.5}
    assert planner.figures == {**planner.figures, **shown, **rates}
    clock.sleep(2)
    assert await planner.next_offset(second, Limits()) is None
    clock.sleep(60)
    assert await planner.next_offset(second, Limits()) is None
    shown = {"batch": 2, "lastBatchRecords": 2, "lastBatchBytes": 10, "recordsPerSecond": 1.0, "bytesPerSecond": 5.0}
    assert planner.figures == {**planner.figures, **shown}


async def test_a_restarted_query_counts_on():
    store = MemoryWriteOnceStore()
    fetcher = await opened(store, SHARDS)
    await fetcher.read_all(5)
    planner = WalPlanner(store, ManualClock(), 1)
    end = await planner.next_offset(await planner.initial_offset(), Limits())
    await fetcher.read_all(8)
    again = WalPlanner(store, ManualClock(), 1)
    later = await again.next_offset(WalOffset.from_json(end.to_json()), Limits())
    assert (later.records, later.bytes) == (16, 80)


async def started(stream, tmp_path, clock, limit=2**60) -> tuple[WalFetcher, asyncio.Task[int]]:
    given = {"mode": "continuous", "walRollInterval": 50, "flink.shard.getrecords.intervalmillis": 50}
    store = WriteOnceStore(FolderStore(tmp_path / "metadata"))
    options = SparkOptions.parse(stream.options(tmp_path, **given))
    fetcher = await WalFetcher.take_over(options, store, BackPressure(limit, poll_seconds=0.05), clock)
    return fetcher, asyncio.create_task(fetcher.run())


async def until(is_there: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_there():  # noqa: ASYNC110 - the fetcher tells nobody
            await asyncio.sleep(0.02)


async def until_shown(fetcher: WalFetcher, **values: object) -> None:
    await until(lambda: fetcher.figures() == {**fetcher.figures(), **values})


async def planned_by(planner: WalPlanner) -> WalOffset:
    start = await planner.initial_offset()
    async with asyncio.timeout(60):
        while (planned := await planner.next_offset(start, Limits())) is None:  # noqa: ASYNC110 - the log tells nobody
            await asyncio.sleep(0.02)
    return planned


async def test_the_figures_of_the_fetcher_have_the_names_of_mode_batch(stream, tmp_path, clock):
    fetcher, run = await started(stream, tmp_path, clock)
    await until_shown(fetcher, atTip=2)
    stream.split(0)
    await until_shown(
        fetcher, shards=3, reading=3, atTip=3, streams=[stream.name], idle=0, held=0, millisBehindLatest=0
    )
    await until(lambda: fetcher.figures()["timeToRetentionLossMs"] is not None)
    assert 23.9 * HOUR_MS < fetcher.figures()["timeToRetentionLossMs"] <= 24 * HOUR_MS
    stream.put(10)
    planner = WalPlanner(WriteOnceStore(FolderStore(tmp_path / "metadata")), clock, 1)
    assert (await planned_by(planner)).records > 0
    shown = {**planner.figures, **fetcher.figures()}
    assert shown.keys() - {metric.figure for metric in PROGRESS_METRICS} == {"entry", "streams"}
    of_batch = QueryProgress.after(BatchOffset.unlisted(0), BatchOffset.unlisted(0), 1, is_planned=True).figures()
    assert of_batch.keys() - shown.keys() == {"tasks"}
    fetcher.stop()
    await run


async def test_unread_records_near_their_retention_are_warned_of_once(stream, tmp_path, clock, caplog):
    stream.put(1, shard=0)
    fetcher, run = await started(stream, tmp_path, clock, limit=1)
    await until_shown(fetcher, atTip=2)
    stream.put(5, shard=0)
    await until(lambda: read_so_far(fetcher) == 6)  # and not written, since the log is full
    await until(lambda: fetcher.figures()["timeToRetentionLossMs"] is not None)
    fetcher.warn_of_loss()
    assert not near_loss(caplog)
    clock.ahead_ms = 20 * HOUR_MS
    for _ in range(2):
        fetcher.warn_of_loss()
    assert 3.9 * HOUR_MS < fetcher.figures()["timeToRetentionLossMs"] < 4.1 * HOUR_MS
    (warned,) = near_loss(caplog)
    assert "lost in 4.0 h unless they are read before: the stream keeps them for 24 h" in warned
    fetcher.stop()
    await run


def read_so_far(fetcher: WalFetcher) -> int:
    return sum(shard["numberOfDeaggregatedRecords"] for shard in fetcher._fetcher.metrics()["shards"].values())


def near_loss(caplog) -> list[str]:
    return [line for line in caplog.messages if "unless they are read before" in line]
