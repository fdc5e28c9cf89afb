"""The sample Spark job is run as written, by a classic Spark and by Spark Connect."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections import Counter

import pytest

from recordpublisher.local import serve_in_thread

from processes.command_line import ROOT
from spark_jobs.queries import spark_home

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2700)]
JOB = ROOT / "docs/spark/spark_job.py"
MINUTE = 60_000
EPOCH = 1_700_000_040_000
"""A whole minute."""
WORKER_WAS_SLOW = "to connect back"
"""Spark waits ten seconds, which nothing can change; a machine that is shared may need more. Who meets it starts the job again."""
STARTS = 3


@pytest.fixture
def served():
    with serve_in_thread(streams={"orders": 2}) as thread:
        yield thread


@pytest.mark.parametrize("remote", [None, "local[2]"], ids=["classic", "connect"])
def test_the_sample_job_counts_every_order_of_a_finished_minute_once(served, tmp_path, remote):
    if remote is not None and importlib.util.find_spec("grpc") is None:
        pytest.skip("Spark Connect needs grpcio: pip install 'pyspark[connect]'")
    write_properties(served, tmp_path)
    truth: Counter[tuple[int, str]] = Counter()
    put(served, truth, range(90))
    run(tmp_path, remote)
    put(served, truth, [*range(90, 200), 1000])  # at last the event time goes far beyond the minutes that are looked at
    run(tmp_path, remote)
    finished = {key: count for key, count in truth.items() if key[0] < EPOCH + 900_000}
    assert written(tmp_path) == finished


def test_the_commands_of_the_page_store_the_classes_of_the_jvm(served, tmp_path):
    page = (ROOT / "docs/spark/run-a-job.md").read_text(encoding="utf-8")
    commands = [line.removeprefix("$ ") for line in page.splitlines() if line.startswith("$ SPARK_SUBMIT_OPTS=")]
    assert len(commands) == 2
    write_properties(served, tmp_path)
    put(served, Counter(), range(90))
    environment = {key: value for key, value in os.environ.items() if key != "SPARK_SUBMIT_OPTS"}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": "--master local[2] pyspark-shell"}
    environment["SPARK_HOME"] = str(spark_home())  # without PySpark's archives, which the first command removes
    for command in commands:
        written = command.removesuffix(" --now").replace("python spark_job.py", f"{sys.executable} {JOB}") + " --now"
        subprocess.run(written, shell=True, env=environment, cwd=tmp_path, check=True, timeout=900)
        wait_until_it_is_there(tmp_path / "spark.jsa")


def wait_until_it_is_there(file):
    """The JVM stores its classes after Python has ended."""
    until = time.monotonic() + 300
    while not file.exists():
        assert time.monotonic() < until
        time.sleep(0.5)


def put(served, truth, seconds):
    """Two orders for each second of event time."""

    def append():
        for second in seconds:
            for key in ("a", "b"):
                at = EPOCH + second * 1000
                served.endpoint.stream("orders").put(b'{"at": %d}' % at, key)
                truth[at // MINUTE * MINUTE, key] += 1

    served.call(append)


def write_properties(served, folder):
    given = {
        "stream": "orders",
        "metadataLocation": folder / "claims",
        "maxTasks": 2,
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.watermark.timestamp.field": "at",
        **served.endpoint.properties(),
    }
    text = "".join(f"{key}={value}\n" for key, value in given.items()).replace(":", r"\:")
    (folder / "job.properties").write_text(text)


def run(folder, remote):
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": "--master local[2] pyspark-shell",
    }
    if remote is not None:
        environment = {**environment, "SPARK_REMOTE": remote}
        del environment["PYSPARK_SUBMIT_ARGS"]
    command = [sys.executable, str(JOB), str(folder / "job.properties"), str(folder / "out"), "--now"]
    for _ in range(STARTS):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
        if WORKER_WAS_SLOW not in done.stderr:
            break
    assert done.returncode == 0, done.stderr[-4000:]


def written(folder):
    import pyarrow.parquet as pq

    found: Counter[tuple[int, str]] = Counter()
    for file in sorted((folder / "out").glob("batch=*/*.parquet")):
        rows = pq.ParquetFile(file).read().to_pylist()
        for row in rows:
            key = (round(row["minute"].timestamp() * 1000), row["partitionKey"])
            assert key not in found
            found[key] = row["count"]
    return found
