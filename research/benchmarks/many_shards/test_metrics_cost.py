"""What metrics of 1,000 shards cost the process that exports them, as a share of one core (`make bench`)."""

import asyncio
import time

import msgspec
import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.plugins.dashboard.snapshots import LiveSnapshots
from recordpublisher.plugins.metrics.export import FetchersOfProcess
from recordpublisher.plugins.metrics.prometheus.exporter import metrics_page
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.testing.virtual_time import run_virtual

from benchmarks.figures.table import Row
from fakes.monitoring.measured_fetcher import MeasuredFetcher
from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(300)]
SHARDS, READINGS = 1_000, 7
SCRAPE_SECONDS, POLL_SECONDS = 15.0, 2.0
"""Of Prometheus as usually set up, and of the dashboard's page."""


class LiveFetcher(MeasuredFetcher):
    """Collects its metrics anew at each call."""

    def __init__(self, fetcher):
        super().__init__()
        self._fetcher = fetcher

    def metrics(self):
        return self._fetcher.metrics()


def source():
    """A job that has read two records of each shard."""

    async def run():
        scripted = ScriptedSource()
        for number in range(SHARDS):
            scripted.add(f"shardId-{number:012}", 1_700_000_000_000, 1_700_000_000_500)
        fetcher = make_fetcher(scripted, RecordingSink())
        await fetcher.open()
        await fetcher.run_bounded(Bounds(stop_at_tip=True))
        return FetchersOfProcess([LiveFetcher(fetcher)])

    return run_virtual(run())


async def cpu_seconds(read):
    """The CPU time of one reading: the least of several."""
    taken = []
    for _ in range(READINGS):
        began = time.process_time()
        await read()
        taken.append(time.process_time() - began)
    return min(taken)


def test_metrics_cost(table):
    read = source()
    snapshots = LiveSnapshots(read, SystemClock(), 60_000)

    async def scrape():
        return metrics_page(await read.metrics(), await read.health())

    async def look():
        return msgspec.json.encode(await snapshots._make())

    async def measure():
        return await cpu_seconds(scrape) / SCRAPE_SECONDS, await cpu_seconds(look) / POLL_SECONDS

    for name, share in zip(
        ("Prometheus, a scrape every 15 s", "a page of the dashboard"), asyncio.run(measure()), strict=True
    ):
        row = Row(f"{name}, {SHARDS:,} shards", share * 100, at_most=1.0, section="silence", unit="%")
        table.append(row)
