"""Counts what two workers cost in DynamoDB, at rest and under load, ours and the KCL's: `make group-requests`. Needs Maven; nine minutes.

Both have their default settings, and checkpoint every ten seconds. The engine is DynamoDB Local, which says what it would bill.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from compare.tools import copied, java_command
from groups.costs.counting_proxy import CountingProxy, counting_proxy
from groups.load import SteadyLoad
from groups.worker_group import WorkerGroup, worker_group
from servers.atomic_stores import PROPERTIES, serve_dynamodb_local

WORKERS, SHARDS = 2, 20
SETTLE_SECONDS = {"recordpublisher": 40, "KCL": 200}
"""Until shards move no more. The KCL makes its tables, elects a leader, and balances once a minute or two."""
COUNT_SECONDS = 60
CHECKPOINT_SECONDS = 10


@contextmanager
def ours(group: WorkerGroup, folder: Path, dynamodb: str) -> Iterator[None]:
    """Workers of the group; it ends them."""
    for number in range(WORKERS):
        group.join(f"worker-{number}")
    yield


@contextmanager
def kcl(group: WorkerGroup, folder: Path, dynamodb: str) -> Iterator[None]:
    """Workers of the KCL, which read the same stream."""
    command = java_command(copied("kcl", folder), "Work.java")
    given = [group.served.endpoint.url, dynamodb, "orders", "polling", str(CHECKPOINT_SECONDS)]
    with ExitStack() as stack:
        for _ in range(WORKERS):
            process = subprocess.Popen([*command, *given], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def counted(proxy: CountingProxy) -> Mapping[str, float]:
    """What is done in a second."""
    proxy.reset()
    time.sleep(COUNT_SECONDS)
    return {name: count / COUNT_SECONDS for name, count in proxy.counts.items()}


def main() -> None:
    print(f"{WORKERS} workers, {SHARDS} shards, a second (load of the machine {os.getloadavg()[0]:.1f}):")
    for name, workers in zip(SETTLE_SECONDS, (ours, kcl), strict=True):
        with tempfile.TemporaryDirectory() as folder, serve_dynamodb_local() as url, counting_proxy(url) as proxy:
            properties = {
                **PROPERTIES,
                "flink.state.uri": "dynamodb://groups/orders",
                "flink.state.endpoint": proxy.url,
            }
            with (
                worker_group(Path(folder), SHARDS, properties, http2=True) as group,
                workers(group, Path(folder), proxy.url),
            ):
                time.sleep(SETTLE_SECONDS[name])
                print(name, "at rest:", _text(counted(proxy)), flush=True)
                with SteadyLoad(group, SHARDS, 1):
                    time.sleep(CHECKPOINT_SECONDS)
                    print(name, "under load:", _text(counted(proxy)), flush=True)


def _text(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {count:.2f}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    main()
