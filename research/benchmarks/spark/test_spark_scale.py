"""A Spark query over 1,800 shards: time of a batch and memory of the planning process, without and with HTTP. And what S3 and DynamoDB as
the place of claims add to a batch over 16 shards."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recordpublisher.local import serve_in_thread

from benchmarks.spark.spark_process import cpu_between, run_job
from processes.repeated_work import repeated
from servers.atomic_stores import PROPERTIES, serve_dynamodb_local, serve_versitygw
from spark_jobs import scripted_shards
from spark_jobs.tcp_switch import switch_before

pytestmark = [pytest.mark.spark, pytest.mark.benchmark, pytest.mark.timeout(900)]
SHARDS = int(os.environ.get("SPARK_SHARDS", "1800"))
GOAL_SECONDS, GOAL_MB = 1.5, 200
FEW_SHARDS = 16
LATENCY = float(os.environ.get("LATENCY", "0.025"))
"""Seconds that each call to the store of claims takes longer."""
GOAL_ADDED_SECONDS, GOAL_ADDED_CPU = 0.15, 0.2
"""What claims in S3 or DynamoDB may add to a batch whose claims are in a folder: seconds, and a part of its CPU (issue 14)."""
SCRIPTED = {"stream": "scripted", "flink.stream.recordpublisher": "SCRIPTED", "flink.stream.initpos": "TRIM_HORIZON"}
SERVERS = {"s3://bucket/claims": serve_versitygw, "dynamodb://claims/query": serve_dynamodb_local}


def test_scripted_shards(tmp_path):
    scripted_shards.install(tmp_path / "site")
    told = measure("scripted", SCRIPTED, tmp_path)
    assert told["peakMb"] <= GOAL_MB
    assert sum(batch["rows"] for batch in told["batches"]) >= SHARDS


@pytest.mark.parametrize("place", SERVERS, ids=["s3", "dynamodb"])
def test_scripted_shards_with_claims_elsewhere(tmp_path, place):
    scripted_shards.install(tmp_path / "site")
    with claims_at(place) as options:
        measure(f"claims in {place} that answers after {LATENCY} s", options, tmp_path)


@pytest.mark.parametrize("place", SERVERS, ids=["s3", "dynamodb"])
def test_what_the_place_of_claims_adds_to_a_batch(tmp_path, place):
    measured = {}
    with claims_at(place) as elsewhere:
        for number, options in enumerate([SCRIPTED, elsewhere] * 3):  # in turn: the machine is not always as fast
            folder = tmp_path / str(number)
            scripted_shards.install(folder / "site")
            told = measure(options.get("metadataLocation", "a folder"), options, folder, batches=24, shards=FEW_SHARDS)
            measured.setdefault(options is elsewhere, []).append((seconds_of(told), sum(cpu_of(told).values())))
    (seconds, cpu), (more_seconds, more_cpu) = (
        map(statistics.median, zip(*measured[key], strict=True)) for key in (False, True)
    )
    print(
        f"\n{FEW_SHARDS} shards, claims in {place} that answers after {LATENCY} s: {(more_seconds - seconds) * 1000:+.0f} ms a batch "
        f"(goal {GOAL_ADDED_SECONDS * 1000:+.0f}), {more_cpu / cpu - 1:+.0%} CPU (goal {GOAL_ADDED_CPU:+.0%}), beside a folder "
        f"({seconds:.2f} s, {cpu:.3f} s of CPU); load average {os.getloadavg()[0]:.1f}"
    )


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


@contextmanager
def claims_at(place: str) -> Iterator[dict[str, str]]:
    """The options of a query whose claims are in a server that answers after `LATENCY`."""
    with SERVERS[place]() as url, switch_before(url, LATENCY) as server:
        yield SCRIPTED | {"metadataLocation": place, "flink.state.endpoint": server.url} | PROPERTIES


def measure(name: str, options: dict[str, str], folder: Path, batches: int = 8, shards: int = SHARDS) -> dict:
    answer = run_job(options, folder, batches, **{scripted_shards.SHARDS: str(shards)})
    goal = f" (goal {GOAL_SECONDS} s)" if shards == SHARDS else ""
    print(f"\n{shards} shards, {name}: {seconds_of(answer):.2f} s a batch{goal}, load average {os.getloadavg()[0]:.1f}")
    print("CPU seconds a batch:", {kind: round(seconds, 3) for kind, seconds in cpu_of(answer).items()})
    print(f"planning process: {answer['peakMb']:.0f} MB at most (goal {GOAL_MB} MB)")
    for batch in answer["batches"]:
        print("  ", batch)
    return answer


def seconds_of(answer: dict) -> float:
    """The median of the batches after a warm-up."""
    warm = answer["batches"][min(3, len(answer["batches"]) - 1) :]
    return statistics.median(batch["triggerExecution"] for batch in warm) / 1000


def cpu_of(answer: dict) -> dict[str, float]:
    """CPU seconds of a batch after a warm-up, by kind of process."""
    rows = statistics.mean(batch["rows"] for batch in answer["batches"][3:])
    return {kind: cpu_between(answer["batches"][2:], kind) / 1e6 * rows for kind in ("planner", "tasks", "jvm")}
