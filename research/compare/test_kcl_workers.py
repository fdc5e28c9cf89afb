"""Two workers of the KCL on the embedded endpoint: the second one takes children of a split and is killed, the first one reads the rest.

The first worker leads the group. It is not the one to be killed: KCL 3 replaces a leader after two minutes.
"""

import time

import boto3
import pytest

from recordpublisher.local import serve_in_thread

from compare.records import ACCESS, SECONDS, Records
from compare.tools import copied, java_command, require
from servers.moto_server import serve_moto

pytestmark = [pytest.mark.compare, pytest.mark.timeout(900)]


def wait_for_workers(dynamodb, count):
    """Wait until the table names so many workers: the leader may give leases to them."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        rows = dynamodb.scan(TableName="polling", ConsistentRead=True)["Items"]
        if sum(row.get("entityType", {}).get("S") == "WORKER_METRIC_STATS" for row in rows) >= count:
            return
        time.sleep(0.5)
    raise TimeoutError(rows)


def test_a_worker_reads_what_a_killed_one_had_taken(tmp_path):
    require("mvn")
    command = java_command(copied("kcl", tmp_path), "Work.java")
    with serve_in_thread(streams={"orders": 2}, http2=True) as endpoint, serve_moto() as moto:
        dynamodb = boto3.client("dynamodb", endpoint_url=moto, **ACCESS)
        records = Records(endpoint.url)
        arguments = (*command, endpoint.url, moto, "orders", "polling")
        with records.read_by("first", *arguments):
            records.put()
            records.read_all()
            with records.read_by("second", *arguments):
                wait_for_workers(dynamodb, 2)
                records.split()
                records.put()
                records.wait_until(lambda: any(name == "second" for name, _, _ in records.found))
            records.put()
            records.read_all()
            records.merge()
            records.put()
            records.read_all()
        records.close()
        dynamodb.close()
    assert set(records.numbers()) == set(range(records.count))
