"""kill -9 of the driver and everything it started, in the middle of whatever it was doing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import spark_job_to_kill

pytestmark = [pytest.mark.spark, pytest.mark.kills, pytest.mark.timeout(900)]
JOB = Path(spark_job_to_kill.__file__)


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
def test_every_record_once_whenever_the_driver_is_killed(kinesis, spark, tmp_path, publisher):
    seed = int(os.environ.get("KILL_SEED", random.randrange(10**6)))
    print(f"KILL_SEED={seed}")
    chance = random.Random(seed)
    stream = kinesis(f"killed-{publisher.lower()}", 3)
    more = {"flink.stream.recordpublisher": publisher, "flink.stream.efo.consumername": "k", "maxRecordsPerBatch": 3000}
    arguments = [json.dumps(stream.options(tmp_path, **more)), str(tmp_path)]
    with producing(stream):
        for round_number in range(4):
            run_and_kill(arguments, chance, tmp_path / "job.log")
            if round_number == 1:
                stream.split(0)
    finished = subprocess.run(
        [sys.executable, str(JOB), *arguments, "--finish"], check=False, capture_output=True, text=True, timeout=300
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    read = sorted(int(row["n"]) for row in spark.read.parquet(str(tmp_path / "out")).select("n").collect())
    assert len(read) == len(set(read)), "duplicates"
    assert read == list(range(stream.count)), "missing"


@contextmanager
def producing(stream: Any) -> Iterator[None]:
    """About 500 records a second, until the block ends."""
    stopped = threading.Event()

    def produce() -> None:
        while not stopped.wait(0.1):
            stream.put(50)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def run_and_kill(arguments: list[str], chance: random.Random, log: Path) -> None:
    """Start the job, let it run some batches and a random while longer, and kill all of it."""
    command = [sys.executable, str(JOB), *arguments]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True) as job,
    ):
        assert job.stdout is not None
        lines = chance.randint(1, 4)
        for line in job.stdout:
            lines -= 1
            if lines <= 0 or "Traceback" in line:
                break
        time.sleep(chance.uniform(0, 3))
        assert job.poll() is None, f"the job ended by itself: {log.read_text()[-5000:]}"
        os.killpg(job.pid, signal.SIGKILL)
