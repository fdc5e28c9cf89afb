"""Outages of 1, 30 and 300 s, in the middle of a batch, in planning and in a claim: nothing is lost, repeated or ended.

`make soak-spark` runs it; OUTAGE_SECONDS sets the lengths.
"""

from __future__ import annotations

import os
import time

import pytest

from servers.moto_server import KEYS, serve_moto
from spark_jobs.kills import Job, Running, check_once
from spark_jobs.tcp_switch import TcpSwitch, switch_before

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kills,
    pytest.mark.timeout(7200),
    pytest.mark.skipif("KILL_ROUNDS" not in os.environ, reason="for make soak-spark"),
]
LENGTHS = [float(seconds) for seconds in os.environ.get("OUTAGE_SECONDS", "1,30,300").split(",")]
MOST_SECONDS_AFTER = 60
"""The pause between two tries is 10 s at most; the rest is a batch on a busy machine."""


@pytest.mark.parametrize("place", ["reading", "planning", "claiming"])
@pytest.mark.parametrize("seconds", LENGTHS)
def test_every_record_once_and_the_query_goes_on_soon_after_the_outage(
    kinesis, served, spark, tmp_path, seconds, place
):
    stream = kinesis(f"away-{seconds:g}-{place}", 2)
    with serve_moto() as url, switch_before(served.url) as endpoint, switch_before(url) as store:
        options = {
            "metadataLocation": f"s3://bucket/{stream.name}",
            "flink.state.endpoint": store.url,
            "aws.endpoint": endpoint.url,
        }
        services = {"reading": [endpoint], "planning": [endpoint, store], "claiming": [store]}[place]
        job = Job(
            stream.options(tmp_path, **KEYS, **options), tmp_path, "parquet", "local[2]"
        )  # a task has one attempt
        with job.start() as running:
            stream.put(100)
            running.wait_until(lambda: rows(running) == stream.count, "rows before the outage")
            begin_outage(running, stream, place, services)
            time.sleep(seconds)
            assert running.process.poll() is None, running.errors()
            began = time.monotonic()
            for service in services:
                service.turn_on()
            running.wait_until(lambda: rows(running) == stream.count, "rows after the outage")
            later = time.monotonic() - began
        job.finish()
        check_once(job, spark, stream)
    print(f"{place}, away for {seconds:g} s: all {stream.count} rows once, the last {later:.1f} s after the return")
    assert later < MOST_SECONDS_AFTER


def begin_outage(running: Running, stream, place: str, services: list[TcpSwitch]) -> None:
    """Take services away where a task is, or between two batches, while there are new records."""
    if place == "planning":
        for service in services:
            service.turn_off()
        stream.put(100)
        return
    running.arm(place)
    stream.put(100)
    running.pause_at(place)
    for service in services:
        service.turn_off()
    running.disarm()


def rows(running: Running) -> int:
    return sum(int(line.split()[2]) for line in list(running.lines) if line.startswith("batch"))
