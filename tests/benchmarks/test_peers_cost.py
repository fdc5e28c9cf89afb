"""CPU per record next to other ways of polling: async-kinesis, and a bare loop of aiohttp, orjson and pybase64 (`make bench`)."""

import subprocess
from pathlib import Path
from statistics import median

import pytest
from benchmarks.processes import ENVIRONMENT, HERE, micros_of, replay_server
from benchmarks.table import Row

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]

PEERS = Path(__file__).parents[2] / ".venvs" / "peers" / "bin" / "python"
SHARDS, RECORDS, SIZE, ROUNDS = 16, 60_000, 200, 3
ASYNC_KINESIS_RECORDS = 160_000
"""It reads about 10,000 records a second."""


def peer(script, url, records):
    command = [PEERS, HERE / "peers" / script, url, "get_records", str(records)]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, check=True, timeout=200)
    return float(said.stdout)


@pytest.mark.skipif(not PEERS.exists(), reason="the peers are not installed: make peers")
def test_cpu_per_record(table):
    ours, raw = [], []
    with replay_server(SHARDS, RECORDS, 2_500, SIZE) as url:
        for _ in range(ROUNDS):
            ours.append(micros_of("pipeline_client.py", url, "POLLING", "off", SHARDS * RECORDS))
            raw.append(peer("raw_client.py", url, RECORDS))
        theirs = peer("async_kinesis_client.py", url, ASYNC_KINESIS_RECORDS)
    name = f"polling, {SIZE} B x 10,000"
    table.append(Row(name, median(ours), median(raw), None, 1.7, "aiohttp + orjson"))
    table.append(Row(name, median(ours), theirs, None, 25, "async-kinesis"))
