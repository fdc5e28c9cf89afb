"""One worker becomes eight and one again, under load; draws who reads each shard when: `make scale-out-picture`."""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from pathlib import Path

from groups.load import SteadyLoad
from groups.readers import moves
from groups.repeats import repeats
from groups.scaling.picture import draw
from groups.stores import STORES
from groups.worker_group import WorkerGroup, worker_group

WORKERS, SHARDS, ROUNDS_PER_SECOND = 8, 24, 5
PHASE_SECONDS = {"one": 15, "eight": 45, "one again": 20}
"""Shards move to workers that joined when these have been the same for ten seconds."""
START_SECONDS = 120


def scale(group: WorkerGroup) -> dict[str, float]:
    """When each number of workers began (seconds since the epoch)."""
    first, *others = [f"worker-{number}" for number in range(1, WORKERS + 1)]
    group.join(first)
    group.wait_until(lambda: group.written(first), START_SECONDS)
    began = {"1 worker": time.time()}
    time.sleep(PHASE_SECONDS["one"])
    began[f"{WORKERS} workers"] = time.time()
    for name in others:
        group.join(name)
    group.wait_until(lambda: all(group.written(name) for name in others), START_SECONDS)
    time.sleep(PHASE_SECONDS["eight"])
    began["1 worker again"] = time.time()
    for name in others:
        group.processes[name].send_signal(signal.SIGTERM)
    assert [group.processes[name].wait(timeout=START_SECONDS) for name in others] == [0] * len(others)
    time.sleep(PHASE_SECONDS["one again"])
    return began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--store", choices=STORES, default="postgresql")
    parser.add_argument("--picture", type=Path, required=True)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        STORES[given.store](Path(folder)) as properties,
        worker_group(Path(folder), SHARDS, properties) as group,
    ):
        with SteadyLoad(group, SHARDS, ROUNDS_PER_SECOND):
            began = scale(group)
        group.wait_until_all_is_written()
        written = {name: group.written(name) for name in group.processes}
        seconds = sorted(move.seconds for move in moves(written))
        print(
            f"{given.store}, load of the machine {os.getloadavg()[0]:.1f}: {len(group.sent)} records, {len(repeats(written))} repeated, "
            f"{len(seconds)} moves, without a reader: median {seconds[len(seconds) // 2]:.1f} s, most {seconds[-1]:.1f} s"
        )
        draw(written, began, given.picture)


if __name__ == "__main__":
    main()
