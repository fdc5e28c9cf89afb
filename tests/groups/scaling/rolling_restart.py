"""Restarts each worker of a group under load, and prints for how long each shard had no reader: `make rolling-restart STORE=postgresql`.

As a Deployment does: a new worker is started, and when it is ready, an old one gets SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from groups.load import SteadyLoad
from groups.readers import moves
from groups.repeats import repeats
from groups.stores import STORES
from groups.worker_group import WorkerGroup, worker_group
from processes.job_files import end

ROUNDS_PER_SECOND = 5
START_SECONDS = 300


def restart_each(group: WorkerGroup, workers: int) -> None:
    """Start the workers, and replace one after the other."""
    names = [f"old-{number}" for number in range(workers)]
    for name in names:
        group.join(name)
    group.wait_until(lambda: all(group.written(name) for name in names), START_SECONDS)
    for name in names:
        _join(group, name.replace("old", "new"))
        assert end(group.processes[name]) == 0, group.log(name)


def _join(group: WorkerGroup, name: str) -> None:
    group.join(name)
    group.wait_until(lambda: "joins its group" in group.log(name), START_SECONDS)


def report(group: WorkerGroup) -> str:
    """The figures."""
    written = {name: group.written(name) for name in group.processes}
    seconds = sorted(move.seconds for move in moves(written))
    lost = len(group.sent - {each.sequence_number for lines in written.values() for each in lines})
    return (
        f"{len(group.sent)} records, {lost} lost, {len(repeats(written))} repeated; {len(seconds)} moves; "
        f"without a reader: median {statistics.median(seconds):.1f} s, "
        f"90 % {seconds[int(len(seconds) * 0.9)]:.1f} s, most {seconds[-1]:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--store", choices=STORES, default="sqlite")
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--shards", type=int, default=20)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        STORES[given.store](Path(folder)) as properties,
        worker_group(Path(folder), given.shards, properties) as group,
    ):
        began = time.monotonic()
        with SteadyLoad(group, given.shards, ROUNDS_PER_SECOND):
            restart_each(group, given.workers)
        group.wait_until_all_is_written()
        took = time.monotonic() - began
        print(
            f"{given.store}, {given.workers} workers, {given.shards} shards, {took:.0f} s, "
            f"load of the machine {os.getloadavg()[0]:.1f}: {report(group)}"
        )


if __name__ == "__main__":
    main()
