"""The cost of many shards: CPU per record with 1 to 1,000 shards and with 1 to 4 processes, memory, start-up (`make bench`)."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from benchmarks.figures.table import Row
from benchmarks.processes import ENVIRONMENT, output_of, replay_server

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]

BODY = 200
"""Records in an answer or event: the same at every number of shards, and what a thousand's share of the memory has room for."""
RECORDS = {1: 12_000, 10: 12_000, 100: 6_000, 1_000: 2_000}
"""Of a shard: at one shard twelve seconds of polling, at a thousand ten answers or events."""
FLAT = 1.25
"""Flat within 25 %: the cost may fall with more shards, which share what the process costs by itself, but not rise."""
MEMORY_MB, START_SECONDS = 400, 3.0
NAMES = {"POLLING": "polling", "EFO": "fan-out", "off": "", "5000": ", aligned"}


def flat(name, micros):
    """The largest rise on the way up, over the cheapest before it."""
    rise = max(micros[index] / min(micros[:index]) for index in range(1, len(micros)))
    return Row(f"{name}: rise", rise, at_most=FLAT, section="many shards", unit="x")


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
@pytest.mark.parametrize("lookahead", ["off", "5000"])
def test_shards(publisher, lookahead, table):
    name, micros = NAMES[publisher] + NAMES[lookahead], []
    for shards, records in RECORDS.items():
        with replay_server(shards, records, BODY, 200) as url:
            output = json.loads(output_of("clients/growth_client.py", url, publisher, lookahead, records, BODY))
        print(f"\n  {shards} shards: {output}")
        micros.append(output["record"])
        table.append(Row(f"{name}, {shards:,} shard{'s'[: shards > 1]}", micros[-1], section="many shards"))
    table.append(flat(f"{name}, 1 to 1,000 shards", micros))
    of_all = f"{name}, {max(RECORDS):,} shards"
    table.append(Row(f"{of_all}, largest memory", output["rss"], at_most=MEMORY_MB, section="many shards", unit="MB"))
    started = output["started"]
    table.append(
        Row(f"{of_all}, CPU to the first write", started, at_most=START_SECONDS, section="many shards", unit="s")
    )


@contextmanager
def tracker():
    command = [sys.executable, "-m", "recordpublisher", "tracker", "--port", "0", "--token", "secret"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        try:
            yield re.search(r"[\d.]+:\d+", process.stderr.readline())[0]
        finally:
            process.terminate()


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
def test_processes(publisher, table):
    """The same shards over more processes, aligned by the TCP tracker; summed over the processes without the tracker's."""
    shards, micros = 100, []
    with replay_server(shards, RECORDS[shards], BODY, 200) as url:
        for processes in (1, 2, 4):
            with tracker() as address, ThreadPoolExecutor(processes) as pool:
                given = (url, publisher, "5000", RECORDS[shards], BODY)
                shares = [(*given, subtask, processes, address) for subtask in range(processes)]
                output = [
                    json.loads(each)
                    for each in pool.map(lambda share: output_of("clients/growth_client.py", *share), shares)
                ]
            print(f"\n  {processes} processes: {output}")
            assert sum(each["shards"] for each in output) == shards
            micros.append(sum(each["record"] * each["shards"] for each in output) / shards)
            path = f"{NAMES[publisher]}, aligned over {processes} process{'es'[: 2 * (processes > 1)]}"
            table.append(Row(path, micros[-1], section="many shards"))
    table.append(flat(f"{NAMES[publisher]}, aligned over 1 to 4 processes", micros))
