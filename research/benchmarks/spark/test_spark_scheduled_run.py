"""CPU of a scheduled run, by process (printed): AvailableNow with 1,000 new rows (`SCHEDULED_ROWS`) into Parquet.

Measured beside it are Spark's own source, and a Python source without work, below which no Python source can be.
`SCHEDULED_BEFORE` may name the folder `src` of another version, which is measured, too.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recordpublisher.local import serve_in_thread

from spark_jobs import scheduled_job
from spark_jobs.queries import Kinesis, at_home

pytestmark = [pytest.mark.spark, pytest.mark.benchmark, pytest.mark.timeout(1_800)]
ROUNDS, ROWS = int(os.environ.get("SCHEDULED_ROUNDS", "3")), int(os.environ.get("SCHEDULED_ROWS", "1000"))
RATE, PLAIN = "rate-micro-batch", "plain"


@pytest.mark.parametrize("is_at_home", [False, True], ids=["as installed", "without pyspark.zip"])
def test_cpu_by_process(tmp_path, is_at_home):
    own = next(path for path in sys.path if path.endswith("src"))
    before = os.environ.get("SCHEDULED_BEFORE")
    kinds = [
        ("spark's own source", RATE, own),
        ("a Python source without work", PLAIN, own),
        *([("before", "kinesis", before)] if before else []),
        ("kinesis", "kinesis", own),
    ]
    told: dict[str, list[dict[str, Any]]] = {}
    with serve_in_thread() as served:
        stream = Kinesis(served, "scheduled", 4)
        stream.put(ROWS)
        for number in range(ROUNDS):  # in turn: the machine is not always as fast
            for name, form, source in kinds:
                folder = tmp_path / f"{name}-{number}"
                options = {RATE: {"rowsPerBatch": str(ROWS)}, PLAIN: {"rows": str(ROWS)}}.get(form) or stream.options(
                    folder
                )
                told.setdefault(name, []).append(run(form, options, folder, source, is_at_home=is_at_home))
    print(f"\nload average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name, runs in told.items():
        assert all(each["rows"] >= ROWS for each in runs)
        cpu = Counter({kind: statistics.median(each["cpu"].get(kind, 0) for each in runs) for kind in runs[0]["cpu"]})
        python = sum(cpu.values()) - cpu[scheduled_job.JVM]
        print(
            f"{name}: {statistics.median(each['seconds'] for each in runs):.1f} s, CPU of Python {python:.2f} s, {dict(cpu)}"
        )


def run(form: str, options: dict[str, str], folder: Path, source: str, *, is_at_home: bool) -> dict[str, Any]:
    job = {"format": form, "options": options, "folder": str(folder), "conf": {}}
    paths = [str(Path(scheduled_job.__file__).parents[1]), source, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}
    if is_at_home:
        with at_home():
            environment["SPARK_HOME"] = os.environ["SPARK_HOME"]
    command = [sys.executable, scheduled_job.__file__, json.dumps(job)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600, env=environment)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
