"""Every operation of the API by today's boto3, which aiobotocore does not allow beside this library: `make servers`."""

import json
import subprocess

import pytest

from recordpublisher.local import Delays, serve_in_thread
from recordpublisher.publishers.kinesis.endpoints import queue_url

from processes.command_line import ROOT
from servers.sdk.service_model import served_operations, stored_model

pytestmark = [pytest.mark.servers, pytest.mark.timeout(90)]


def test_each_operation_is_answered(newest_sdk):
    with serve_in_thread(delays=Delays(consumer=0)) as endpoint:
        command = [str(newest_sdk), str(ROOT / "tests/servers/sdk/every_operation.py"), endpoint.url]
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    version, *called = ended.stdout.split()
    assert version >= stored_model()["botocore"]
    assert set(called) == set(served_operations())


def test_calls_about_queues_go_where_the_sdk_sends_them_in_every_region(newest_sdk):
    program = str(ROOT / "tests/servers/sdk/queue_hosts.py")
    rows = json.loads(subprocess.run([str(newest_sdk), program], check=True, capture_output=True).stdout)
    assert len(rows) > 500
    assert [row for row in rows if queue_url(*row[:4]) != row[4]] == []
