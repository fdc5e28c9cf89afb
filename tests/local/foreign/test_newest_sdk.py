"""Every operation of the API by today's boto3, which aiobotocore does not allow beside this library: `make servers`."""

import subprocess

import pytest

from recordpublisher.local import Delays, serve_in_thread

from processes.command_line import ROOT
from servers.sdk.service_model import stored_model

pytestmark = [pytest.mark.servers, pytest.mark.timeout(90)]


def test_each_operation_is_answered(newest_sdk):
    with serve_in_thread(delays=Delays(consumer=0)) as endpoint:
        command = [str(newest_sdk), str(ROOT / "tests/servers/sdk/every_operation.py"), endpoint.url]
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    version, *called = ended.stdout.split()
    assert version >= stored_model()["botocore"]
    assert set(called) == set(stored_model()["operations"])
