"""The Kinesis Client Library for Java on the embedded endpoint, with its leases in moto: a worker reads through a split and a merge."""

import pytest

from recordpublisher.local import serve_in_thread

from compare.records import Records
from compare.tools import copied, java_command, require
from servers.moto_server import serve_moto

pytestmark = [pytest.mark.compare, pytest.mark.timeout(900)]


@pytest.mark.parametrize("application", ["polling", "fan-out"])
def test_a_worker_reads_every_record_once_through_a_split_and_a_merge(application, tmp_path):
    require("mvn")
    command = java_command(copied("kcl", tmp_path), "Work.java")
    with serve_in_thread(streams={"orders": 2}, http2=True) as endpoint, serve_moto() as dynamodb:
        records = Records(endpoint.url)
        with records.read_by("worker", *command, endpoint.url, dynamodb, "orders", application):
            for reshard in (records.split, records.merge, records.close):
                records.put()
                records.read_all()
                reshard()
    assert records.numbers() == list(range(records.count))
    assert len({shard for _, shard, _ in records.found}) == 5
