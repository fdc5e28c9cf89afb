"""What many shards cost: CPU per record, memory and start-up at 1 to 1,000 of them (`make bench`)."""

import json

import pytest
from benchmarks.processes import replay_server, said_by

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]

RECORDS, BODY = 2_500, 250
"""Records of a shard, and in an answer or event: the same at every number of shards."""


@pytest.mark.parametrize("shards", [10, 100, 1_000])
@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
@pytest.mark.parametrize("lookahead", ["off", "5000"])
def test_growth(shards, publisher, lookahead, growth):
    with replay_server(shards, RECORDS, BODY, 200) as url:
        said = json.loads(said_by("growth_client.py", url, publisher, lookahead, shards * RECORDS, BODY))
    aligned = "" if lookahead == "off" else ", aligned"
    growth.append(
        f"{publisher + aligned:18}{shards:6} shards {said['record']:7.2f} us/record {said['started']:6.2f} s of CPU to the "
        f"first record {said['rss']:6.0f} MB"
    )
