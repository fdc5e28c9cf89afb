"""Flink's connector on the embedded endpoint: a job on a cluster in one process reads through a split and a merge, with each publisher."""

import pytest

from recordpublisher.local import serve_in_thread

from compare.records import Records
from compare.tools import compiled, copied, require

pytestmark = [pytest.mark.compare, pytest.mark.timeout(900)]


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
def test_a_job_reads_every_record_once_through_a_split_and_a_merge(publisher, tmp_path):
    require("mvn")
    command = compiled(copied("flink", tmp_path), "Read.java")
    with serve_in_thread(streams={"orders": 2}, http2=True) as endpoint:
        records = Records(endpoint.url)
        with records.read_by("job", *command, endpoint.url, "orders", publisher):
            for reshard in (records.split, records.merge, records.close):
                records.put()
                records.read_all()
                reshard()
    assert records.numbers() == list(range(records.count))
    assert len({shard for _, shard, _ in records.found}) == 5
