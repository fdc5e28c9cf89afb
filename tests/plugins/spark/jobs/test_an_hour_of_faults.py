"""Everything at once on a cluster, with claims in S3: kills, outages, reshards and a slow sink. Each row is written once.

`make soak-spark-faults` runs it: SOAK_SECONDS (an hour) with SOAK_KILLS (36).
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from servers.atomic_stores import PROPERTIES, serve_versitygw
from spark_jobs.kills import Job, Running, check_once, kill_executor_of, parent_of, producing, seeded
from spark_jobs.queries import Kinesis
from spark_jobs.tcp_switch import TcpSwitch, switch_before

SECONDS = float(os.environ.get("SOAK_SECONDS", "0"))
KILLS = int(os.environ.get("SOAK_KILLS", "36"))
pytestmark = [
    pytest.mark.spark,
    pytest.mark.kills,
    pytest.mark.timeout(SECONDS + 3600),
    pytest.mark.skipif("SOAK_SECONDS" not in os.environ, reason="for make soak-spark-faults"),
]
CLUSTER = {"spark.executor.memory": "512m", "spark.task.maxFailures": "10", "spark.deploy.maxExecutorRetries": "-1"}
MOST_SHARDS = 8


def test_every_record_once_under_kills_outages_reshards_and_a_slow_sink(kinesis, served, spark, tmp_path):
    chance = seeded()
    stream = kinesis("faults", 4)
    done: Counter[str] = Counter()
    with serve_versitygw() as url, switch_before(url) as store, switch_before(served.url) as endpoint:
        places = {
            "metadataLocation": "s3://bucket/claims",
            "flink.state.endpoint": store.url,
            "aws.endpoint": endpoint.url,
        }
        options = stream.options(tmp_path, **PROPERTIES, **places, maxRecordsPerBatch=5000)
        job = Job(options, tmp_path, "foreach", "local-cluster[2,1,1024]", form="kinesis", **CLUSTER)
        faults = [
            (lambda chance: outage(endpoint, "Kinesis", chance, done), 120),
            (lambda chance: outage(store, "S3", chance, done), 120),
            (lambda chance: reshard(stream, chance, done), 60),
            (lambda chance: slow_sink(tmp_path, chance, done), 90),
        ]
        with producing(stream), at_random_times(faults, chance):
            kill_in_turn(job, chance, done)
        job.finish()
    done["actions run again"] = len(list(tmp_path.glob("again-*")))
    print(f"{stream.count} records in {len(list((tmp_path / 'out-0').glob('batch=*')))} batches; {dict(done)}")
    check_once(job, spark, stream)


def kill_in_turn(job: Job, chance: random.Random, done: Counter[str]) -> None:
    """Kill drivers, executors and tasks, each as often; every second one while rows are written, the others at any time."""
    kinds = ["driver", "executor", "task"] * (KILLS // 3)
    chance.shuffle(kinds)
    began, total = time.monotonic(), len(kinds)
    while kinds:
        with job.start() as running:
            while kinds:
                time.sleep(max(0.0, began + SECONDS * (total - len(kinds) + 1) / total - time.monotonic()))
                kind = kinds.pop()
                worker = running.pause_at("writing")[0]
                if len(kinds) % 2:
                    running.disarm()
                    time.sleep(chance.uniform(0, 3))
                kill(kind, worker, running, chance)
                running.disarm()
                noted(f"killed: {kind}", done)
                if kind == "driver":
                    break


def kill(kind: str, worker: int, running: Running, chance: random.Random) -> None:
    if kind == "driver":  # and, with it, the cluster
        running.kill()
    elif kind == "executor":
        kill_executor_of(worker)
    else:  # the worker that reads, or the one that writes
        daemon = parent_of(worker)
        workers = Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
        os.kill(int(chance.choice(workers)), signal.SIGKILL)


def outage(service: TcpSwitch, name: str, chance: random.Random, done: Counter[str]) -> None:
    """One second to a minute; short ones are as frequent as long ones."""
    seconds = 60 ** chance.random()
    service.turn_off()
    time.sleep(seconds)
    service.turn_on()
    done[f"seconds without {name}"] += round(seconds)
    noted(f"outages of {name}", done)


def reshard(stream: Kinesis, chance: random.Random, done: Counter[str]) -> None:
    shards = len(stream.stream.open_shards)
    if shards < 2 or (shards < MOST_SHARDS and chance.random() < 0.5):
        stream.split(chance.randrange(shards))
        noted("splits", done)
    else:
        stream.merge(chance.randrange(shards - 1))
        noted("merges", done)


def slow_sink(folder: Path, chance: random.Random, done: Counter[str]) -> None:
    """Rows wait before the sink for up to twenty seconds."""
    (folder / "armed-slow").touch()
    time.sleep(chance.uniform(1, 20))
    (folder / "armed-slow").unlink(missing_ok=True)
    noted("times of a slow sink", done)


def noted(what: str, done: Counter[str]) -> None:
    done[what] += 1
    print(f"{time.strftime('%X')} {what}: {done[what]}", flush=True)


@contextmanager
def at_random_times(
    faults: list[tuple[Callable[[random.Random], None], float]], chance: random.Random
) -> Iterator[None]:
    """Each fault again and again, after a random pause of up to its seconds, until the block ends; raises what one raised."""
    stopped = threading.Event()

    def repeat(fault: Callable[[random.Random], None], pause: float, own: random.Random) -> None:
        while not stopped.wait(own.uniform(0, pause)):
            fault(own)

    with ThreadPoolExecutor(len(faults)) as threads:
        running = [threads.submit(repeat, *fault, random.Random(chance.random())) for fault in faults]
        try:
            yield
        finally:
            stopped.set()
        for each in running:
            each.result()
