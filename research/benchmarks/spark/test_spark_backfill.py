"""Seconds of a backfill by `spark.read`, beside a loop of boto3 in `mapPartitions`: the endpoint has the service's limits (printed).

`BACKFILL_BEFORE` may name the folder `src` of another version, which is measured, too.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from recordpublisher.local import Quotas, serve_in_thread

from spark_jobs import backfill_job
from spark_jobs.backfill_job import FORMAT, LOOP

pytestmark = [pytest.mark.spark, pytest.mark.benchmark, pytest.mark.timeout(1_800)]
GOAL = 0.6
"""Of the loop's wall time, with two slots for four shards (issue 55)."""
SIZE, ACTIONS, ROUNDS = 200, 3, int(os.environ.get("BACKFILL_ROUNDS", "2"))
PUT_AT_ONCE = 10_000


@pytest.mark.parametrize(("rows", "shards", "slots"), [(200_000, 4, 2), (1_000_000, 100, 8)])
def test_backfill(rows, shards, slots):
    with serve_in_thread(quotas=Quotas.service()) as served:
        fill(served, rows, shards)
        measured: dict[str, list[list[dict[str, float]]]] = {}
        for _ in range(ROUNDS):  # in turn: the machine is not always as fast
            for name, kind, source in kinds():
                measured.setdefault(name, []).append(run(served, kind, slots, source))
    print(
        f"\n{rows:,} rows of {SIZE} B, {shards} shards, {slots} slots; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    print(f"the service's limit: {rows / shards * SIZE / 2**21:.1f} s")
    for name, runs in measured.items():
        assert all(action["rows"] == rows for each in runs for action in each)
        print(
            f"{name}: first {middle(runs, 0):.1f} s, warm {warm(runs):.1f} s, CPU of an action {middle(runs, -1, 'cpu'):.1f} s"
        )
    ratio = warm(measured["spark.read"]) / warm(measured["boto3"])
    print(f"spark.read takes {ratio:.2f} of the loop's time (goal {GOAL}: {'met' if ratio <= GOAL else 'missed'})")


def kinds() -> list[tuple[str, str, str]]:
    own = next(path for path in sys.path if path.endswith("src"))
    before = os.environ.get("BACKFILL_BEFORE")
    return [("boto3", LOOP, own), *([("before", FORMAT, before)] if before else []), ("spark.read", FORMAT, own)]


def fill(served, rows, shards):
    served.create_stream("backfill", shards)
    stream, payload = served.endpoint.stream("backfill"), b"x" * SIZE

    def put(first: int) -> None:
        starts = [shard.hash_range.start for shard in stream.open_shards]
        for n in range(first, first + PUT_AT_ONCE):
            stream.put(payload, f"key-{n % 1_000}", starts[n % shards])

    for first in range(0, rows, PUT_AT_ONCE):
        served.call(put, first)


def run(served, kind: str, slots: int, source: str) -> list[dict[str, float]]:
    access = {
        "endpoint_url": served.url,
        "region_name": "us-east-1",
        "aws_access_key_id": "a",
        "aws_secret_access_key": "s",
    }
    job = {
        "kind": kind,
        "slots": slots,
        "actions": ACTIONS,
        "stream": "backfill",
        "access": access,
        "options": {"stream": "backfill", **served.properties()},
    }
    paths = [str(Path(backfill_job.__file__).parents[1]), source, os.environ.get("PYTHONPATH", "")]
    told = subprocess.run(
        [sys.executable, backfill_job.__file__, json.dumps(job)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=900,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable},
    )
    answer: list[dict[str, float]] = json.loads(told.stdout.splitlines()[-1])
    return answer


def middle(runs: list[list[dict[str, float]]], number: int, what: str = "seconds") -> float:
    return statistics.median(each[number][what] for each in runs)


def warm(runs: list[list[dict[str, float]]]) -> float:
    return statistics.median(action["seconds"] for each in runs for action in each[1:])
