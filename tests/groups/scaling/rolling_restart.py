"""Restarts each worker of a group under load and reshards; prints for how long shards had no reader: `make rolling-restart STORE=sqlite`.

As a Deployment does: a new worker is started, and when it is ready, an old one gets SIGTERM. Nothing may be lost or repeated (E5).
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
from groups.repeats import check_written
from groups.stores import STORES
from groups.worker_group import WorkerGroup, worker_group
from processes.job_files import end

ROUNDS_PER_SECOND = 5
START_SECONDS = 300


def restart_each(group: WorkerGroup, workers: int) -> None:
    """Start the workers, and replace one after the other; a shard is split after a third of them, and two are merged after two thirds."""
    names = [f"old-{number}" for number in range(workers)]
    for name in names:
        group.join(name)
    group.wait_until(lambda: all(group.written(name) for name in names), START_SECONDS)
    reshards = {workers // 3: group.split, 2 * workers // 3: group.merge}
    for number, name in enumerate(names):
        _join(group, name.replace("old", "new"))
        reshards.get(number, lambda: None)()
        assert end(group.processes[name]) == 0, group.log(name)


def end_all(group: WorkerGroup) -> None:
    """End those that run now, and check what all have written: everything, in order, and nothing twice."""
    group.wait_until_all_is_written()
    for name, process in group.processes.items():
        assert process.poll() == 0 or end(process) == 0, group.log(name)
    assert check_written(group) == 0


def unread_seconds(group: WorkerGroup) -> list[float]:
    """For how long shards had no reader when they moved, the shortest time first."""
    return sorted(move.seconds for move in moves({name: group.written(name) for name in group.processes}))


def _join(group: WorkerGroup, name: str) -> None:
    group.join(name)
    group.wait_until(lambda: "joins its group" in group.log(name), START_SECONDS)


def report(group: WorkerGroup) -> str:
    """The figures."""
    seconds = unread_seconds(group)
    return (
        f"{len(seconds)} moves; "
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
        took = time.monotonic() - began
        load = os.getloadavg()[0]
        end_all(group)
        print(
            f"{given.store}, {given.workers} workers, {given.shards} shards, {took:.0f} s, "
            f"load of the machine {load:.1f}: {report(group)}"
        )


if __name__ == "__main__":
    main()
