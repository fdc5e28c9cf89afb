"""CPU per sub-record of KPL aggregates, through the whole pipeline and of de-aggregation alone, next to aws_kinesis_agg (`make bench`)."""

import asyncio
import json
from statistics import median
from typing import Any

import pytest

from recordpublisher.publishers.shards import HashRange

from benchmarks.figures.table import Row
from benchmarks.processes import PEERS, micros_of, output_of_peer, replay_server
from benchmarks.reading.aggregates import batch, cost_of

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not PEERS.exists(), reason="the peers are not installed: make peers"),
]

RECORDS, PARTS, ROUNDS = 3_000, 100, 3


@pytest.mark.parametrize("size", [100, 200])
def test_cpu_per_sub_record(size, table):
    whole, half, theirs = [], [], []
    with (
        replay_server(1, RECORDS, 100, size, PARTS) as url,
        replay_server(2, RECORDS, 100, size, PARTS, small=0) as halved,
    ):
        for _ in range(ROUNDS):
            whole.append(micros_of("clients/pipeline_client.py", url, "EFO", "off", RECORDS * PARTS))
            theirs.append(json.loads(output_of_peer("kpl_client.py", url, "get_records", RECORDS * PARTS)))
            half.append(micros_of("clients/pipeline_client.py", halved, "EFO", "off", RECORDS * PARTS))
    apart = asyncio.run(cost_of(batch(200, PARTS, 997, size), HashRange()))
    peer: dict[str, Any] = {"peer": "aws_kinesis_agg", "section": "aggregates"}
    name = f"KPL aggregates of {PARTS} x {size} B"
    read = median(each["whole"] for each in theirs)
    table.append(Row(f"{name}, fan-out, the whole pipeline", median(whole), read, 1.0, 2, **peer))
    table.append(Row(f"{name}, and every key's shard checked", median(half), read, 1.0, 2, **peer))
    table.append(Row(f"{name}, de-aggregation alone", apart, median(each["apart"] for each in theirs), None, 2, **peer))
