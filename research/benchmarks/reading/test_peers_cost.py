"""CPU per record next to other ways of polling: async-kinesis, and a bare loop of aiohttp, orjson and pybase64 (`make bench`)."""

from statistics import median

import pytest

from benchmarks.figures.table import Row
from benchmarks.processes import PEERS, micros_of, output_of_peer, replay_server

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]

SHARDS, RECORDS, SIZE, ROUNDS = 16, 60_000, 200, 3
ASYNC_KINESIS_RECORDS = 160_000
"""It reads about 10,000 records a second."""


def peer(script, url, records):
    return float(output_of_peer(script, url, "get_records", records))


@pytest.mark.skipif(not PEERS.exists(), reason="the peers are not installed: make peers")
def test_cpu_per_record(table):
    ours, raw = [], []
    with replay_server(SHARDS, RECORDS, 2_500, SIZE) as url:
        for _ in range(ROUNDS):
            ours.append(micros_of("clients/pipeline_client.py", url, "POLLING", "off", SHARDS * RECORDS))
            raw.append(peer("raw_client.py", url, RECORDS))
        theirs = peer("async_kinesis_client.py", url, ASYNC_KINESIS_RECORDS)
    name = f"polling, {SIZE} B x 10,000"
    table.append(Row(name, median(ours), median(raw), None, 1.7, "aiohttp + orjson", "others"))
    table.append(Row(name, median(ours), theirs, None, 25, "async-kinesis", "others"))
