"""Small shards next to a full one: the time until their records are written, compared with small shards alone (`make bench`)."""

import json
from statistics import median

import pytest

from benchmarks.figures.table import Row
from benchmarks.processes import output_of, replay_server

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(400)]

SMALL_SHARDS, SMALL, FULL, ROUNDS = 50, 10, 150_000, 2
SINK_MICROS = 5
"""What the sink takes for a record: five times what reading takes, so that the full shard keeps the process busy for a second."""
AT_MOST = 3.0
NAMES = {"POLLING": "polling", "EFO": "fan-out", "off": "", "5000": ", aligned"}


def small_shards_took(url, publisher, lookahead):
    return json.loads(output_of("clients/fairness_client.py", url, publisher, lookahead, SINK_MICROS))


CASES = [
    ("EFO", "off", 2_500),
    ("EFO", "5000", 2_500),
    ("EFO", "off", 250),
    ("POLLING", "off", 2_500),
    ("POLLING", "5000", 2_500),
]


@pytest.mark.parametrize(("publisher", "lookahead", "event"), CASES)
def test_small_shards_beside_a_full_one(publisher, lookahead, event, table):
    with (
        replay_server(1 + SMALL_SHARDS, FULL, event, 200, small=SMALL) as mixed,
        replay_server(1 + SMALL_SHARDS, SMALL, event, 200) as even,
    ):
        rounds = [[small_shards_took(url, publisher, lookahead) for url in (mixed, even)] for _ in range(ROUNDS)]
    print(f"\n  beside, alone: {rounds}")
    ratio = median(beside["small"] / alone["small"] for beside, alone in rounds)
    ahead = median(beside["ahead"] for beside, _ in rounds) * 100
    name = f"{NAMES[publisher]}{NAMES[lookahead]}" + (f", {event:,} an event" if publisher == "EFO" else "")
    table.append(
        Row(f"{name}: time beside a full shard, over time alone", ratio, at_most=AT_MOST, section="fairness", unit="x")
    )
    table.append(Row(f"{name}: written of the full shard by then", ahead, section="fairness", unit="%"))
