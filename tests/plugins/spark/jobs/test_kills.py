"""kill -9 of the driver and everything it started: between claim and first row, between rows and commit, and anywhere else."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from itertools import cycle, islice

import pytest

from servers.moto_server import serve_moto
from spark_jobs.kills import WAIT_SECONDS, Job, check_once, kill_at, kill_executor_of, producing, rounds, seeded
from spark_jobs.tcp_switch import switch_before

pytestmark = [pytest.mark.spark, pytest.mark.kills, pytest.mark.timeout(3600)]
POLLING = {"flink.stream.recordpublisher": "POLLING", "maxRecordsPerBatch": 5000}
FAN_OUT = {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "k", "maxRecordsPerBatch": 5000}
LOCAL = "local[2]"
PLACES = {"parquet": ("claimed", "read", "anywhere", "anywhere"), "foreach": ("claimed", "read", "acted", "anywhere")}


@pytest.mark.parametrize(
    ("sink", "publisher"), [("parquet", POLLING), ("foreach", FAN_OUT)], ids=["parquet-polling", "foreach-fan-out"]
)
def test_every_record_once_wherever_the_driver_is_killed(kinesis, spark, tmp_path, sink, publisher):
    chance = seeded()
    stream = kinesis(f"killed-{sink}", 3)
    job = Job(stream.options(tmp_path, **publisher), tmp_path, sink, LOCAL)
    kills: Counter[str] = Counter()
    with producing(stream):
        for number, place in enumerate(islice(cycle(PLACES[sink]), rounds())):
            kill_at(job, place, chance)
            kills[place] += 1
            if number % 8 == 1:
                stream.split(0)
            if number % 8 == 3:
                stream.merge(0)
    job.finish()
    print(f"kills: {dict(kills)}, records: {stream.count}")
    check_once(job, spark, stream)


def test_a_zombie_driver_that_resumes_after_its_replacement_does_no_harm(kinesis, spark, tmp_path):
    stream = kinesis("zombie", 3)
    job = Job(stream.options(tmp_path, **POLLING), tmp_path, "foreach", LOCAL)
    with producing(stream), job.start() as zombie:
        zombie.wait_for_lines(2)
        zombie.pause_at("claimed")
        zombie.signal(signal.SIGSTOP)
        zombie.disarm()
        with job.start() as replacement:
            replacement.wait_for_lines(4)
            zombie.signal(signal.SIGCONT)
            assert zombie.process.wait(WAIT_SECONDS) != 0  # Spark finds that another driver has continued its log
            assert "oncurrent" in zombie.errors()
            replacement.wait_for_lines(len(replacement.lines) + 2)
    job.finish()
    check_once(job, spark, stream)


def test_every_record_once_when_drivers_are_killed_while_services_are_away(kinesis, served, spark, tmp_path):
    """A driver dies between claim and first row while stream and store of claims are away, and the next begins in the outage.

    With KILL_ROUNDS also while only one of them is away.
    """
    stream = kinesis("killed-away", 3)
    with serve_moto() as url, switch_before(served.url) as endpoint, switch_before(url) as store:
        places = {"metadataLocation": "s3://bucket/claims", "flink.state.endpoint": store.url}
        job = Job(
            stream.options(tmp_path, **POLLING, **places, **{"aws.endpoint": endpoint.url}), tmp_path, "parquet", LOCAL
        )
        with producing(stream):
            for away in ((endpoint, store), (endpoint,), (store,))[: 3 if "KILL_ROUNDS" in os.environ else 1]:
                with job.start() as running:
                    running.wait_for_lines(3)
                    running.pause_at("claimed")
                    for service in away:
                        service.turn_off()
                    running.kill()
                    running.disarm()
                with job.start() as running:  # begins in the outage: it repeats the batch that was not committed
                    time.sleep(10)
                    assert running.process.poll() is None, running.errors()
                    for service in away:
                        service.turn_on()
                    running.wait_for_lines(3)
        job.finish()
        check_once(job, spark, stream)


def test_every_record_once_on_a_cluster_whose_executors_are_killed(kinesis, spark, tmp_path):
    stream = kinesis("cluster", 3)
    slots = {"spark.executor.memory": "512m", "spark.task.maxFailures": "10"}
    job = Job(stream.options(tmp_path, **POLLING), tmp_path, "foreach", "local-cluster[2,1,1024]", **slots)
    with producing(stream), job.start() as running:
        for place in ("claimed", "read"):
            running.wait_for_lines(len(running.lines) + 2)
            kill_executor_of(running.pause_at(place)[0])
            running.disarm()
        running.wait_for_lines(len(running.lines) + 2)
        running.pause_at("claimed")
        running.kill()  # the driver and, with it, the cluster
        running.disarm()
    job.finish()
    check_once(job, spark, stream)
