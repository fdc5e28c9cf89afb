"""The check of an account, tried on the endpoint in the account's place. Needs today's boto3: `make servers`."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from recordpublisher.local import Delays, serve_in_thread

from aws_check.__main__ import HERE, PYTHON, differences, observe
from aws_check.cases import CASES

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]
OPTIONS = ("--prefix", "check", "--region", "eu-west-1")


@pytest.fixture
def endpoint():
    if not PYTHON.exists():
        reason = ".venvs/sdk is not installed: make servers"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    with serve_in_thread(region="eu-west-1", delays=Delays(consumer=50)) as served:
        yield served


def left(endpoint):
    account = endpoint.endpoint.account
    return [*account.streams(), *(queue.name for queue in account.queues.all())]


def test_every_case_is_asked_and_everything_is_deleted(endpoint, capfd):
    answers = observe("check", "eu-west-1", endpoint.url, None, poll_seconds=0.05)
    assert answers.keys() == CASES.keys()
    assert answers["a record acknowledged twice"] == ["done", "ResourceNotFoundException"]
    assert [name for name, answer in answers.items() if "Error" in str(answer)] == []
    assert left(endpoint) == []
    assert "calls: AcknowledgeQueueRecords" in capfd.readouterr().err


def test_answers_that_differ_are_shown_beside_each_other():
    assert differences({"a": 1, "b": 2}, {"a": 1, "b": 3}) == ["b\n  there: 2\n  here:  3"]


def test_what_a_killed_check_has_left_is_deleted_and_nothing_else(endpoint):
    for name in ("check-of-somebody-else", "orders"):
        endpoint.create_stream(name, 1)
    command = [str(PYTHON), str(HERE / "observe.py")]
    local = ("--endpoint", endpoint.url, "--poll-seconds", "0.05")
    with subprocess.Popen([*command, "check", *OPTIONS, *local], stdout=subprocess.DEVNULL) as check:
        while "check" not in left(endpoint):  # the queue, which is created last
            assert check.poll() is None
            time.sleep(0.01)
        check.kill()

    subprocess.run([*command, "clean", *OPTIONS, *local], check=True)
    assert len(left(endpoint)) == 5  # its hour is not over
    subprocess.run([*command, "clean", *OPTIONS, *local, "--all"], check=True)
    assert left(endpoint) == ["check-of-somebody-else", "orders"]
