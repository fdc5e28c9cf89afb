"""One worker of a group as a process of its own: reads its shards, counts what it writes, and reports on stdout."""

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
from recordpublisher.plugins.runtime.data_fetcher import DataFetcher
from recordpublisher.publishers.records import RecordBatch

REPORT_SECONDS = 0.2


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--number", type=int, required=True)
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
    sink = CountingSink()
    fetcher = DataFetcher(
        [given.stream],
        given.properties,
        sink=sink,
        on_alarm=lambda alarm: _print_json({"alarm": asdict(alarm), "worker": given.number, "at": time.time()}),
    )
    async with fetcher:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, fetcher.stop)
        reports = asyncio.create_task(_report(given.number, fetcher, sink))
        await fetcher.run()
        reports.cancel()
        _print_json(_status(given.number, fetcher, sink))


async def _report(worker: int, fetcher: DataFetcher, sink: CountingSink) -> None:
    while True:
        _print_json(_status(worker, fetcher, sink))
        await asyncio.sleep(REPORT_SECONDS)


def _status(worker: int, fetcher: DataFetcher, sink: CountingSink) -> dict[str, Any]:
    metrics = fetcher.metrics()
    return {"worker": worker, "at": time.time(), "rows": sink.rows, "repeated": sink.repeated, "metrics": metrics}


def _print_json(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
