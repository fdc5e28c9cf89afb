"""Seconds from put to foreachBatch with the Spark source (printed, without a goal)."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from recordpublisher.local import serve_in_thread

from spark_jobs import latency_job

pytestmark = [pytest.mark.spark, pytest.mark.benchmark, pytest.mark.timeout(900)]
SECONDS = int(os.environ.get("SPARK_LATENCY_SECONDS", "15"))
POLLING = {"flink.stream.recordpublisher": "POLLING"}
FAN_OUT = {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "latency"}


@pytest.mark.parametrize("publisher", [POLLING, FAN_OUT], ids=["polling", "fan-out"])
def test_latency(tmp_path, publisher):
    with serve_in_thread() as served:
        served.call(served.endpoint.account.create_stream, "latency", 2)
        options = {
            "stream": "latency",
            "metadataLocation": str(tmp_path / "metadata"),
            "maxTasks": "2",
            **served.endpoint.properties(),
            **publisher,
        }
        told = run(options)
    middle, high = statistics.median(told), statistics.quantiles(told, n=20)[-1]
    print(
        f"\n{publisher['flink.stream.recordpublisher']}: median {middle:.2f} s, 95 % within {high:.2f} s, {len(told)} records"
    )


def run(options: dict[str, str]) -> list[float]:
    paths = [path for path in sys.path if path.endswith("src")]
    told = subprocess.run(
        [sys.executable, latency_job.__file__, json.dumps({"options": options, "seconds": SECONDS})],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(Path(latency_job.__file__).parents[1]), *paths, os.environ.get("PYTHONPATH", "")]
            ),
            "PYSPARK_PYTHON": sys.executable,
        },
    )
    answer: list[float] = json.loads(told.stdout.splitlines()[-1])
    return answer
