"""One subtask as a process of its own: reads its shards, counts what it writes, and reports on stdout."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections import Counter
from dataclasses import asdict
from typing import Any

from recordpublisher.fetcher.sink import Sink
from recordpublisher.fetcher.watermarks.watermark_tracker import WatermarkTracker
from recordpublisher.plugins.host.hookspecs import hookimpl
from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.plugins.host.registry import Registrar
from recordpublisher.plugins.runtime.data_fetcher import DataFetcher
from recordpublisher.plugins.stores.folder_store import FolderStore
from recordpublisher.publishers.records import RecordBatch

from .flink_model.tracker import flink_tracker

REPORT_SECONDS = 0.2
FLINK = "FLINK"
"""The name under which the model of Flink's old rule is registered as a tracker."""


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--subtask", type=int, required=True)
    parser.add_argument("--parallelism", type=int, required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--properties", type=json.loads, required=True)
    asyncio.run(_run(parser.parse_args()))


class CountingSink(Sink):
    """Counts the records written of each shard, and those written twice."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.repeated = 0
        self._seen: set[str] = set()

    async def write(self, batch: RecordBatch) -> None:
        """Count."""
        self.rows[f"{batch.stream}/{batch.shard_id}"] += len(batch)
        for record in batch:
            self.repeated += record.sequence_number in self._seen
            self._seen.add(record.sequence_number)


async def _run(given: argparse.Namespace) -> None:
    running: list[DataFetcher] = []
    sink = CountingSink()
    fetcher = DataFetcher(
        [given.stream],
        given.properties,
        sink=sink,
        state_store=FolderStore(given.state),
        subtask=given.subtask,
        parallelism=given.parallelism,
        on_alarm=lambda alarm: _print_json({"alarm": asdict(alarm), "subtask": given.subtask, "at": time.time()}),
        registry=load_registry([_FlinkPlugin(running)]),
    )
    running.append(fetcher)
    async with fetcher:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, fetcher.stop)
        reports = asyncio.create_task(_report(given.subtask, fetcher, sink))
        await fetcher.run()
        reports.cancel()
        _print_json(_status(given.subtask, fetcher, sink))


class _FlinkPlugin:
    """Registers the model as a tracker; it reads the metrics of the one fetcher of this process."""

    def __init__(self, running: list[DataFetcher]) -> None:
        self._tracker = flink_tracker(lambda: running[0].metrics()["shards"])

    @hookimpl
    def recordpublisher_register_trackers(self, registry: Registrar[WatermarkTracker]) -> None:
        """Register FLINK."""
        registry.add(FLINK, self._tracker)


async def _report(subtask: int, fetcher: DataFetcher, sink: CountingSink) -> None:
    while True:
        _print_json(_status(subtask, fetcher, sink))
        await asyncio.sleep(REPORT_SECONDS)


def _status(subtask: int, fetcher: DataFetcher, sink: CountingSink) -> dict[str, Any]:
    metrics = fetcher.metrics()
    return {"subtask": subtask, "at": time.time(), "rows": sink.rows, "repeated": sink.repeated, "metrics": metrics}


def _print_json(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
