"""The cost of many shards: CPU per record with 1 to 1,000 shards and with 1 to 4 processes, memory, start-up (`make bench`)."""

import json

import pytest

from benchmarks.figures.table import Row
from benchmarks.processes import output_of, replay_server

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
