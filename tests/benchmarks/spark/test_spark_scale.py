"""A Spark query over 1,800 shards: time of a batch and memory of the planning process, without and with HTTP."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import pytest

from recordpublisher.local import serve_in_thread

from benchmarks.spark.spark_process import cpu_between, run_job
from processes.repeated_work import repeated
from servers.moto_server import KEYS, serve_moto
from spark_jobs import scripted_shards

pytestmark = [pytest.mark.spark, pytest.mark.benchmark, pytest.mark.timeout(900)]
SHARDS = int(os.environ.get("SPARK_SHARDS", "1800"))
GOAL_SECONDS, GOAL_MB = 1.5, 200
LATENCY = float(os.environ.get("LATENCY", "0.025"))
"""Seconds that each call to the store of claims takes longer."""


def test_scripted_shards(tmp_path):
    scripted_shards.install(tmp_path / "site")
    options = {"stream": "scripted", "flink.stream.recordpublisher": "SCRIPTED", "flink.stream.initpos": "TRIM_HORIZON"}
    told = measure("scripted", options, tmp_path)
    assert told["peakMb"] <= GOAL_MB
    assert sum(batch["rows"] for batch in told["batches"]) >= SHARDS


@pytest.mark.parametrize("place", ["s3://bucket/claims", "dynamodb://claims/query"], ids=["s3", "dynamodb"])
def test_scripted_shards_with_claims_elsewhere(tmp_path, place):
    scripted_shards.install(tmp_path / "site")
    with serve_moto(LATENCY) as url:
        options = {
            "stream": "scripted",
            "flink.stream.recordpublisher": "SCRIPTED",
            "flink.stream.initpos": "TRIM_HORIZON",
            "metadataLocation": place,
            "flink.state.endpoint": url,
            "aws.region": "us-east-1",
            **KEYS,
        }
        measure(f"claims in {place} that answers after {LATENCY} s", options, tmp_path)


def test_shards_over_http(tmp_path):
    with serve_in_thread() as served:
        served.call(served.endpoint.account.create_stream, "http", SHARDS)
        options = {"stream": "http", "flink.stream.initpos": "TRIM_HORIZON", **served.endpoint.properties()}

        def put():
            stream = served.endpoint.stream("http")
            for n, shard in enumerate(stream.open_shards):
                stream.put(b"x" * 200, f"key-{n}", shard.hash_range.start)

        with repeated(lambda: served.call(put), 1.0):
            told = measure("over HTTP", options, tmp_path)
    assert told["peakMb"] <= GOAL_MB


def measure(name: str, options: dict[str, str], folder: Path, batches: int = 8) -> dict:
    answer = run_job(options, folder, batches, **{scripted_shards.SHARDS: str(SHARDS)})
    warm = answer["batches"][min(3, batches - 1) :]
    seconds = statistics.median(batch["triggerExecution"] for batch in warm) / 1000
    print(
        f"\n{SHARDS} shards, {name}: {seconds:.2f} s a batch (goal {GOAL_SECONDS} s), load average {os.getloadavg()[0]:.1f}"
    )
    spent = {kind: cpu_between(answer["batches"][2:], kind) / 1e6 for kind in ("planner", "tasks", "jvm")}
    rows = statistics.mean(batch["rows"] for batch in answer["batches"][3:])
    print("CPU seconds a batch:", {kind: round(seconds * rows, 2) for kind, seconds in spent.items()})
    print(f"planning process: {answer['peakMb']:.0f} MB at most (goal {GOAL_MB} MB)")
    for batch in answer["batches"]:
        print("  ", batch)
    return answer
