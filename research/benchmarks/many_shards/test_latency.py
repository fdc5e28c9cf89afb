"""Milliseconds from the call that puts a record until the sink has it, at 10,000 records/s on four shards (`make bench`).

Endpoint, producer and reader are processes of their own, and go before other work on the machine where the system allows it. How long
the reader waited for a CPU core all the same is printed beside the figures.
"""

import json
import subprocess
import sys
from statistics import median

import pytest

from benchmarks.figures.table import Row
from benchmarks.processes import ENVIRONMENT, HERE
from benchmarks.servers.live_endpoint import live_endpoint, shield

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(300)]

SHARDS, RECORDS_A_SECOND, SECONDS = 4, 10_000, 6
GOALS = {"EFO": {"p50": 5.0, "p99": 25.0}, "POLLING": {}}


def process(script, *arguments):
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)


def one_round(publisher):
    with live_endpoint("live", SHARDS) as (url, endpoint), process("clients/live_client.py", url, publisher) as reader:
        try:
            assert reader.stdout.readline() == "ready\n"
            with process("servers/live_producer.py", url, RECORDS_A_SECOND, SECONDS) as producer:
                shield(endpoint, reader, producer)
                put = json.loads(producer.stdout.readline())
            return json.loads(reader.stdout.readline()), put
        finally:
            reader.terminate()


@pytest.mark.parametrize(("publisher", "rounds"), [("EFO", 3), ("POLLING", 1)])
def test_latency(publisher, rounds, table):
    said = [one_round(publisher) for _ in range(rounds)]
    for read, put in said:
        print(f"\n  {publisher}: put {put}, read {read}")
    name = {"EFO": "fan-out", "POLLING": "polling, five calls a second"}[publisher]
    for share in ("p50", "p99", "max"):
        written = median(read["written"][share] for read, _ in said)
        goal = GOALS[publisher].get(share)
        table.append(Row(f"{name}, put to sink, {share}", written, at_most=goal, section="latency", unit="ms"))
    for what, key in (("put to deserializer", "read"), ("the put call itself (endpoint)", "put")):
        figure = median(put["p50"] if key == "put" else read["read"]["p50"] for read, put in said)
        table.append(Row(f"{name}, {what}, p50", figure, section="latency", unit="ms"))
    waited = median(read["waited"] for read, _ in said) * 100
    table.append(Row(f"{name}, the reader waited for a CPU core", waited, section="latency", unit="%"))
