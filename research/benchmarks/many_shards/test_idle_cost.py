"""The cost of shards without records, as a share of one core (`make bench`)."""

import pytest

from benchmarks.figures.table import Row
from benchmarks.processes import output_of
from benchmarks.servers.live_endpoint import live_endpoint

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(300)]


@pytest.mark.parametrize(("publisher", "shards", "goal"), [("EFO", 1_000, 0.05), ("POLLING", 100, 0.40)])
def test_idle_cost(publisher, shards, goal, table):
    with live_endpoint("silent", shards) as (url, _):
        share, reads = output_of("clients/idle_client.py", url, publisher, 20).split()
    assert int(reads) > 0
    name = {"POLLING": "polling", "EFO": "fan-out"}[publisher]
    row = Row(f"{name}, {shards:,} silent shards", float(share) * 100, at_most=goal * 100, section="silence", unit="%")
    table.append(row)
