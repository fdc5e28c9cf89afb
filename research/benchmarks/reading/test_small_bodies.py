"""CPU per record when a call returns few: 100 records of 200 B (`make bench`)."""

import json
from statistics import median

import pytest

from benchmarks.figures.table import Row
from benchmarks.processes import micros_of, output_of, replay_server

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]

SHARDS, RECORDS, BODY, ROUNDS = 100, 2_000, 100, 3


def test_cpu_per_record(table):
    ours, boto3 = [], []
    with replay_server(SHARDS, RECORDS, 250, 200) as url:
        for _ in range(ROUNDS):
            output = json.loads(output_of("clients/growth_client.py", url, "POLLING", "off", RECORDS, BODY))
            ours.append(output["record"])
            boto3.append(micros_of("clients/boto3_client.py", url, "get_records", RECORDS, BODY))
    table.append(Row(f"polling, 200 B x {BODY}", median(ours), median(boto3), 5.0, 3, section="others"))
