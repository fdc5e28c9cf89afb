"""A day of a query in ten minutes: its wall clock and the endpoint's run 144 times as fast. Files, memory and connections stay level.

`make soak-spark` runs it; DAY_SECONDS sets how long it takes, DAY_PLACES where claims are kept: folder,s3,dynamodb (needs Go, Maven).
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from recordpublisher.local import serve_in_thread

from processes.command_line import ROOT
from processes.repeated_work import repeated
from servers.atomic_stores import PROPERTIES, serve_dynamodb_local, serve_versitygw
from spark_jobs import fast_clock_format
from spark_jobs.fast_clock_format import fast_now_ms
from spark_jobs.queries import Kinesis, numbers

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kills,
    pytest.mark.timeout(3600),
    pytest.mark.skipif("KILL_ROUNDS" not in os.environ, reason="for make soak-spark"),
]
DAY_SECONDS = float(os.environ.get("DAY_SECONDS", "600"))
SPEED = 86_400 / DAY_SECONDS
CLOCK_BEGAN = time.time()
MORE_MB, MORE_HANDLES = 30, 4
PLACES = {"s3": (serve_versitygw, "s3://bucket/day"), "dynamodb": (serve_dynamodb_local, "dynamodb://claims/day")}


class FastClock:
    """The endpoint's clock, which is the job's."""

    def now_ms(self) -> int:
        return fast_now_ms(SPEED, CLOCK_BEGAN)


@contextmanager
def claims_at(place: str) -> Iterator[dict[str, str]]:
    """The options of a place for claims."""
    if place == "folder":
        yield {}
        return
    serve, location = PLACES[place]
    with serve() as url:
        yield {**PROPERTIES, "metadataLocation": location, "flink.state.endpoint": url}


@pytest.mark.parametrize("place", os.environ.get("DAY_PLACES", "folder").split(","))
def test_files_memory_and_connections_of_a_query_are_level_for_a_day(spark, tmp_path, place):
    with serve_in_thread(clock=FastClock()) as served, claims_at(place) as claims:
        stream = Kinesis(served, "day", 3)
        options = stream.options(tmp_path, **claims)
        job = {"options": options, "folder": str(tmp_path), "seconds": DAY_SECONDS}
        with living(stream, DAY_SECONDS):
            held = run(job, tmp_path)
    assert numbers(spark, tmp_path) == list(range(stream.count))
    third = len(held) // 3
    early, late = held[third : 2 * third], held[2 * third :]
    shown = {name: (most(early, name), most(late, name)) for name in held[0]}
    print(
        f"a day in {DAY_SECONDS:g} s, claims in {place}, {stream.count} records; most in its second and its last third: {shown}"
    )
    assert most(late, "claims") <= most(early, "claims") + 3
    assert most(late, "mb") <= most(early, "mb") + MORE_MB
    assert most(late, "handles") <= most(early, "handles") + MORE_HANDLES
    assert most(late, "sockets") <= most(early, "sockets") + MORE_HANDLES


def most(held: list[dict[str, float]], name: str) -> float:
    return max(each[name] for each in held)


def run(job, folder) -> list[dict[str, float]]:
    """What the job held, again and again; it ends when it has read everything."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT / "src")]),
        "PYSPARK_PYTHON": sys.executable,
        fast_clock_format.SPEED: str(SPEED),
        fast_clock_format.BEGAN: str(CLOCK_BEGAN),
    }
    command = [sys.executable, str(ROOT / "tests/spark_jobs/day_job.py"), json.dumps(job)]
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    assert process.stdout is not None
    lines = [json.loads(line) for line in process.stdout if line.startswith("{")]
    assert process.wait() == 0, (folder / "errors").read_text()[-4000:]
    return [line for line in lines if "claims" in line]


def living(stream: Kinesis, seconds: float) -> AbstractContextManager[None]:
    """Bursts of records, hours of silence, and a split and a merge now and then, until the day is nearly over."""
    until, turns = time.monotonic() + seconds * 0.95, itertools.count(1)

    def produce() -> None:
        if time.monotonic() >= until:
            return
        turn = next(turns)
        if turn % 10 < 6:
            stream.put(20)
        if turn % 60 == 20:
            stream.split(0)
        if turn % 60 == 50:
            stream.merge(0)

    return repeated(produce, seconds / 300)
