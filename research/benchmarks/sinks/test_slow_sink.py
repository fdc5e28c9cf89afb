"""The CPU of a job while its sink sleeps: close to zero (`make bench`)."""

import pytest

from benchmarks.figures.table import Row
from benchmarks.processes import output_of, replay_server

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(120)]

AT_MOST = 2.0
"""Percent of a core."""


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
def test_cpu_while_the_sink_sleeps(publisher, table):
    with replay_server(16, 60_000, 2_500, 200) as url:
        share = float(output_of("clients/sinks/slow_sink_client.py", url, publisher, 10)) * 100
    name = {"POLLING": "polling", "EFO": "fan-out"}[publisher]
    table.append(Row(f"{name}, 16 full shards, the sink sleeps", share, at_most=AT_MOST, section="silence", unit="%"))
