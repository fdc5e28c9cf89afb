"""A Spark query over 1,800 shards: time of a batch and memory of the planning process, without and with HTTP."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import spark_scale_job
import spark_scripted_shards

from recordpublisher.plugins.local import serve_in_thread

pytestmark = [pytest.mark.spark, pytest.mark.benchmark, pytest.mark.timeout(900)]
SHARDS = int(os.environ.get("SPARK_SHARDS", "1800"))
GOAL_SECONDS, GOAL_MB = 1.5, 200


def test_scripted_shards(tmp_path):
    spark_scripted_shards.install(tmp_path / "site")
    options = {"stream": "scripted", "flink.stream.recordpublisher": "SCRIPTED", "flink.stream.initpos": "TRIM_HORIZON"}
    told = measure("scripted", options, tmp_path)
    assert told["peakMb"] <= GOAL_MB
    assert sum(batch["rows"] for batch in told["batches"]) >= SHARDS


def test_shards_over_http(tmp_path):
    with serve_in_thread() as served:
        served.call(served.endpoint.account.create_stream, "http", SHARDS)
        options = {"stream": "http", "flink.stream.initpos": "TRIM_HORIZON", **served.endpoint.properties()}

        def put():
            stream = served.endpoint.stream("http")
            for n, shard in enumerate(stream.open_shards):
                stream.put(b"x" * 200, f"key-{n}", shard.hash_range.start)

        served.call(put)
        told = measure("over HTTP", options, tmp_path, batches=2)
    assert told["peakMb"] <= GOAL_MB


def measure(name: str, options: dict[str, str], folder: Path, batches: int = 8) -> dict:
    source = Path(spark_scale_job.__file__).parent
    paths = [str(folder / "site"), str(source), *(path for path in sys.path if path.endswith("src"))]
    given = {**options, "metadataLocation": str(folder / "claims"), "maxTasks": "2"}
    told = subprocess.run(
        [
            sys.executable,
            spark_scale_job.__file__,
            json.dumps({"options": given, "folder": str(folder), "batches": batches}),
        ],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
            "PYSPARK_PYTHON": sys.executable,
            spark_scripted_shards.SHARDS: str(SHARDS),
        },
    )
    answer: dict = json.loads(told.stdout.splitlines()[-1])
    warm = answer["batches"][min(3, batches - 1) :]
    seconds = statistics.median(batch["triggerExecution"] for batch in warm) / 1000
    print(f"\n{SHARDS} shards, {name}: {seconds:.2f} s a batch (goal {GOAL_SECONDS} s)")
    print(f"planning process: {answer['peakMb']:.0f} MB at most (goal {GOAL_MB} MB)")
    for batch in answer["batches"]:
        print("  ", batch)
    return answer
