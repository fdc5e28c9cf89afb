"""CPU per record through the whole pipeline, next to a bare boto3 loop in the same run (`make bench` prints the table).

`rp.DataFetcher` with everything on (decoding, de-aggregation check, event times, watermarks, queues, state, a sink that does nothing)
reads a replayed stream; boto3 reads the same records and does nothing with them. Each is a separate process; the two run in turn.
"""

from dataclasses import dataclass
from statistics import median

import pytest

from benchmarks.figures.table import Row
from benchmarks.processes import micros_of, replay_server

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

ROUNDS = 3
LOOKAHEAD_MILLIS = 5_000
"""Half of what an answer of 10,000 records spans: every such batch is cut at the gate at least once."""


@dataclass(frozen=True)
class Load:
    """The replayed stream: records of each shard, number of shards, and the goals for reading them."""

    publisher: str
    size: int
    event: int
    shards: int
    records: int
    at_most: float | None = None
    at_least: float | None = None

    @property
    def section(self):
        return "pipeline" if self.size <= 1024 else "large records"

    @property
    def name(self):
        if self.publisher == "POLLING":
            return f"polling, {self.size} B x {min(10_000, 10 * 2**20 // self.size):,}"
        return f"fan-out, {self.size} B x {self.event:,} an event"


LOADS = [
    Load("POLLING", 200, 2_500, 16, 60_000, at_most=1.2, at_least=12),
    Load("POLLING", 1024, 500, 16, 45_000, at_most=2.0, at_least=8),
    Load("EFO", 200, 2_500, 16, 60_000, at_most=1.0, at_least=12),
    Load("EFO", 200, 250, 16, 60_000),
    Load("EFO", 1024, 500, 8, 30_000),
    Load("POLLING", 10_240, 50, 8, 1_500),
    Load("POLLING", 102_400, 5, 8, 150),
    Load("POLLING", 2**20, 1, 8, 15),
    Load("EFO", 10_240, 50, 8, 1_500),
    Load("EFO", 102_400, 5, 8, 150),
    Load("EFO", 2**20, 1, 8, 15),
]


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_cpu_per_record(load, table):
    free, aligned, iterated, boto3 = [], [], [], []
    with replay_server(load.shards, load.records, load.event, load.size) as url:
        for _ in range(ROUNDS):
            free.append(ours(load, url, "off"))
            boto3.append(bare_boto3(load, url))
            aligned.append(ours(load, url, LOOKAHEAD_MILLIS))
            iterated.append(ours(load, url, "off", "iterate"))
    goals = load.at_most, load.at_least
    table.append(Row(load.name, median(free), median(boto3), *goals, section=load.section))
    table.append(Row(f"{load.name}, aligned", median(aligned), median(boto3), *goals, section=load.section))
    looked_at = f"{load.name}, every record iterated"
    table.append(Row(looked_at, median(iterated), median(boto3), section=load.section))


def ours(load, url, lookahead, how="drop"):
    return micros_of("clients/pipeline_client.py", url, load.publisher, lookahead, load.shards * load.records, how)


def bare_boto3(load, url):
    how = "get_records" if load.publisher == "POLLING" else "subscribe_to_shard"
    return micros_of("clients/boto3_client.py", url, how, load.records)
