"""CPU per record over TLS, compared with boto3 over TLS and with the same pipeline without TLS (`make bench` prints the table).

The replay server, what it serves and the readers are those of `test_pipeline_cost.py`. Both readers check the certificate.
"""

from statistics import median

import pytest

from benchmarks.figures.table import Row
from benchmarks.processes import micros_of, replay_server
from servers.certificates import self_signed

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

ROUNDS = 3
PATHS = {  # publisher, size, event, shards, records of each; the goal of issue 7 for the ratio
    "polling, 200 B x 10,000": ("POLLING", 200, 2_500, 16, 60_000, 12),
    "polling, 1024 B x 10,000": ("POLLING", 1024, 500, 16, 45_000, 8),
    "fan-out, 200 B x 2,500 an event": ("EFO", 200, 2_500, 16, 60_000, 12),
}
CALLS = {"POLLING": "get_records", "EFO": "subscribe_to_shard"}


@pytest.mark.parametrize("path", PATHS)
def test_cpu_per_record(path, table, tmp_path):
    publisher, size, event, shards, records, at_least = PATHS[path]
    certificate, key = self_signed(tmp_path)
    secured, boto3, plain = [], [], []
    with (
        replay_server(shards, records, event, size) as http,
        replay_server(shards, records, event, size, certificate=(certificate, key)) as https,
    ):
        ours = (publisher, "off", shards * records)
        for _ in range(ROUNDS):
            secured.append(micros_of("clients/pipeline_client.py", https, *ours, trusted=certificate))
            boto3.append(micros_of("clients/boto3_client.py", https, CALLS[publisher], records, trusted=certificate))
            plain.append(micros_of("clients/pipeline_client.py", http, *ours))
    table.append(Row(f"{path}, over TLS", median(secured), median(boto3), at_least=at_least, section="over TLS"))
    table.append(Row(f"{path}, what TLS adds", median(secured) - median(plain), section="over TLS"))
