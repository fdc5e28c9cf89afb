"""kill -9 of jobs in mode CONTINUOUS: between a file and its entry, after the entry, and anywhere else."""

from __future__ import annotations

import os
import time

import pytest

from spark_jobs.kills import Job, Running, check_once, kill_executor_of, producing, rounds, seeded

pytestmark = [pytest.mark.spark, pytest.mark.kills, pytest.mark.timeout(1800)]
CONTINUOUS = {"mode": "continuous", "walRollInterval": 200, "maxRecordsPerBatch": 5000}
POLLING = {**CONTINUOUS, "flink.stream.recordpublisher": "POLLING"}
FAN_OUT = {**CONTINUOUS, "flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "k"}


def test_every_record_once_on_a_cluster_whose_executor_and_driver_are_killed(kinesis, spark, tmp_path):
    chance = seeded()
    stream = kinesis("continuous-cluster", 3)
    slots = {"spark.executor.memory": "512m", "spark.task.maxFailures": "10"}
    job = Job(stream.options(tmp_path, **FAN_OUT), tmp_path, "parquet", "local-cluster[2,1,1024]", **slots)
    with producing(stream), job.start() as running:
        wait_for_batches(running, 2)
        kill_executor_of(running.pause_at("claimed")[0])
        running.disarm()
        stream.split(0)
        wait_for_batches(running, 2)
        time.sleep(chance.uniform(0, 2))
        running.kill()  # the driver and, with it, the cluster
    job.finish()
    check_once(job, spark, stream)


@pytest.mark.skipif("KILL_ROUNDS" not in os.environ, reason="for make soak-spark")
def test_every_record_once_wherever_the_driver_is_killed(kinesis, spark, tmp_path):
    chance = seeded()
    stream = kinesis("continuous-killed", 3)
    job = Job(stream.options(tmp_path, **POLLING), tmp_path, "parquet", "local[2]")
    with producing(stream):
        for number in range(rounds() // 2):
            with job.start() as running:
                wait_for_batches(running, chance.randint(1, 3))
                running.pause_at(chance.choice(["file-written", "entry-written", "claimed", "read"]))
                running.kill()
                running.disarm()
            stream.split(0) if number % 2 else stream.merge(0)
    job.finish()
    print(f"records: {stream.count}")
    check_once(job, spark, stream)


def wait_for_batches(running: Running, count: int) -> None:
    running.wait_for_lines(max(1, len(running.lines)) + count)
