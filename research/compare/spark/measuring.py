"""What is measured of a Spark job: rows a second and CPU a row of a backlog, small batches, rows that kills lose or repeat."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from queue import Empty, Queue
from statistics import median
from typing import Any

from recordpublisher.local import serve_in_thread
from recordpublisher.local.shard import hash_of

from compare.spark.connectors import Connector
from processes.repeated_work import repeated

SHARDS, BACKLOG, SIZE = 8, 2_000_000, 200
MANY_SHARDS, CHUNK = 32, 100_000
SMALL_SECONDS, SMALL_RECORDS, KILLS, RATE = 60, 32, 4, 500
QUIET_SECONDS = 90


class Job:
    """A process of the job, in a group of its own so that a kill takes the driver, the JVM and the workers."""

    def __init__(self, client: Connector, url: str, folder: Path, action: str) -> None:
        self.process = subprocess.Popen(
            client.command(url, folder, action),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._lines: Queue[dict[str, Any]] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self._lines.put(json.loads(line))

    def line(self, seconds: float = 180) -> dict[str, Any] | None:
        """The next line of the job, None when there is none for so long."""
        try:
            return self._lines.get(timeout=seconds)
        except Empty:
            return None

    def kill(self) -> None:
        """SIGKILL to every process of the job at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def measure_cost(client: Connector, folder: Path) -> dict[str, float]:
    """A backlog into the noop sink, then a few records twice a second."""
    with serve_in_thread(streams={"orders": SHARDS}) as server:
        stream = server.endpoint.stream("orders")
        server.call(_put, stream, range(BACKLOG))
        job = Job(client, server.endpoint.url, folder, "noop")
        try:
            lines = []
            while sum(line["rows"] for line in lines) < BACKLOG:
                line = job.line()
                assert line is not None, f"{client.name} has stopped after {lines[-1:]}"
                lines.append(line)
            small = _small_batches(job, server, stream)
        finally:
            job.kill()
    lines = [line for line in lines if line["rows"]]
    first, last = lines[0], lines[-1]
    rows = sum(line["rows"] for line in lines[1:])
    return {
        "rows_a_second": rows / (last["at"] - first["at"]),
        "cpu_a_row_us": (last["cpu"] - first["cpu"]) / rows * 1e6,
        **small,
    }


@dataclass(frozen=True, slots=True)
class RowCost:
    """CPU of a row by layer, us: the JVM, and every other process, which is Python."""

    java: float
    python: float


def measure_layers(client: Connector, folder: Path, size: int, rows: int) -> tuple[RowCost, RowCost]:
    """A backlog of twice these rows in 32 shards: what each of the first half costs, with the start of Spark, and each of the second."""
    with serve_in_thread(streams={"orders": MANY_SHARDS}) as server:
        for first in range(0, 2 * rows, CHUNK):
            server.call(_put, server.endpoint.stream("orders"), range(first, first + CHUNK), size)
        job = Job(client, server.endpoint.url, folder, "noop")
        lines: list[dict[str, Any]] = []
        try:
            while sum(line["rows"] for line in lines) < 2 * rows:
                line = job.line()
                assert line is not None, f"{client.name} has stopped after {lines[-1:]}"
                lines.append(line)
        finally:
            job.kill()
    read = list(accumulate(line["rows"] for line in lines))
    middle = bisect_left(read, rows)
    start = {"cpu": 0.0, "java": 0.0}
    return _cost(start, lines[middle], read[middle]), _cost(lines[middle], lines[-1], read[-1] - read[middle])


def _cost(start: dict[str, Any], end: dict[str, Any], rows: int) -> RowCost:
    java, cpu = (end[name] - start[name] for name in ("java", "cpu"))
    return RowCost(java / rows * 1e6, (cpu - java) / rows * 1e6)


def _small_batches(job: Job, server: Any, stream: Any) -> dict[str, float]:
    """The time from a put to the end of the batch that has read it, in the middle; and how many cores the job uses."""
    sent: list[tuple[float, int]] = []

    def send() -> None:
        server.call(_put, stream, range(SMALL_RECORDS))
        sent.append((time.monotonic(), SMALL_RECORDS * (len(sent) + 1)))

    lines, until = [], time.monotonic() + SMALL_SECONDS
    with repeated(send, 0.5):
        while time.monotonic() < until:
            if (line := job.line(0.5)) is not None:
                lines.append(line)
    while sum(line["rows"] for line in lines) < sent[-1][1]:
        line = job.line()
        assert line is not None, f"the job has stopped after {lines[-1:]}"
        lines.append(line)
    rows = list(accumulate(line["rows"] for line in lines))
    return {
        "put_to_end_s": median(lines[bisect_left(rows, number)]["at"] - when for when, number in sent),
        "small_cores": (lines[-1]["cpu"] - lines[0]["cpu"]) / (lines[-1]["at"] - lines[0]["at"]),
    }


def measure_kills(client: Connector, folder: Path, seed: int = 1) -> dict[str, float]:
    """Numbered records into Parquet files while the job is killed again and again; which numbers are missing or there twice."""
    chance, produced, ended, waits = random.Random(seed), [0], threading.Event(), []
    with serve_in_thread(streams={"orders": SHARDS}) as server:
        stream = server.endpoint.stream("orders")

        def produce() -> None:
            while not ended.wait(0.1):
                start, produced[0] = produced[0], produced[0] + RATE // 10
                server.call(_put, stream, range(start, start + RATE // 10))

        producer = threading.Thread(target=produce)
        producer.start()
        try:
            for _ in range(KILLS):
                job = Job(client, server.endpoint.url, folder, "rows")
                started = time.monotonic()
                assert job.line() is not None, f"{client.name} does not start"
                waits.append(time.monotonic() - started)
                time.sleep(chance.uniform(0.5, 5))
                job.kill()
        finally:
            ended.set()
            producer.join()
        _finish(Job(client, server.endpoint.url, folder, "rows"))
        counting = Job(client, server.endpoint.url, folder, "count")
        line = counting.line()
        counting.kill()
    assert line is not None
    found = lost_and_repeated(produced[0], line["numbers"])
    return {"records": produced[0], "kills": KILLS, "restart_s": median(waits[1:]), **found}


def lost_and_repeated(produced: int, numbers: list[int]) -> dict[str, int]:
    """What became of the numbers below `produced`: lost is one that is missing though a later one of its shard is there.

    Missing ones at the end of a shard are unread: the job was stopped before. Repeated are the rows beyond one for each number.
    """
    read = Counter(numbers)
    newest: dict[int, int] = {}
    for number in read:
        newest[_shard(number)] = max(number, newest.get(_shard(number), -1))
    missing = [number for number in range(produced) if number not in read]
    lost = sum(number < newest.get(_shard(number), -1) for number in missing)
    return {"lost": lost, "unread": len(missing) - lost, "repeated": len(numbers) - len(read)}


def _shard(number: int) -> int:
    """Which of the shards has a number: that of its partition key."""
    return hash_of(str(number)) * SHARDS >> 128


def _finish(job: Job) -> None:
    """Let it read what is left: until it has had no rows for a while."""
    seen = time.monotonic()
    assert job.line() is not None
    while time.monotonic() - seen < QUIET_SECONDS:
        line = job.line(1)
        if line is not None and line["rows"]:
            seen = time.monotonic()
    job.kill()


def _put(stream: Any, numbers: range, size: int = SIZE) -> None:
    for number in numbers:
        stream.put(b"%08d" % number + bytes(size - 8), str(number))
