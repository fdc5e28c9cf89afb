"""The CPU per record that a batch sink adds: Arrow columns, Parquet files, a table of Delta, over a sink that does nothing."""

from statistics import median

import pytest

from benchmarks.figures.table import Row
from benchmarks.processes import micros_of, replay_server

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

SHARDS, RECORDS, EVENT, SIZE, ROUNDS = 16, 30_000, 2_500, 200, 3
AT_MOST = 0.5


def test_cpu_added_to_a_record(table):
    sinks = {"nothing": [], "arrow": [], "parquet": [], "delta": []}
    with replay_server(SHARDS, RECORDS, EVENT, SIZE) as url:
        for _ in range(ROUNDS):
            for what, micros in sinks.items():
                micros.append(micros_of("clients/sinks/batch_sink_client.py", url, what, SHARDS * RECORDS))
    bare = median(sinks["nothing"])
    for what, name in (("arrow", "Arrow columns"), ("parquet", "the parquet sink"), ("delta", "the delta sink")):
        # compared with the bare run of the same round: the load of the machine affects both
        added = median(with_sink - without for with_sink, without in zip(sinks[what], sinks["nothing"], strict=True))
        table.append(Row(f"{name}, added to fan-out, {SIZE} B", added, at_most=AT_MOST, section="batch sinks"))
    table.append(Row(f"fan-out, {SIZE} B, a sink that does nothing", bare, section="batch sinks"))
