"""`recordpublisher consumers` against the embedded endpoint."""

import json

import pytest

from recordpublisher.local import Delays, serve_in_thread

from processes.command_line import several_commands

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders/consumer/billing:"


@pytest.fixture(scope="module")
def done():
    """What each command did, one after the other."""
    commands = ["list", "register", "register", "list --json", "unknown", "deregister", "list"]
    lines = {"list": "list orders", "list --json": "list orders --json", "unknown": "deregister orders bill"}
    with serve_in_thread(streams={"orders": 1}, delays=Delays(consumer=0)) as served:
        given = [["consumers", *lines.get(one, f"{one} orders billing").split()] for one in commands]
        results = several_commands(served, *given)
    return [*zip(commands, results, strict=True)]


def results(done, command):
    return [result for name, result in done if name == command]


def test_register_prints_the_arn_also_of_a_consumer_that_is_registered(done):
    first, second = results(done, "register")

    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith(ARN)
    assert second.stdout == first.stdout


def test_list_shows_the_registered_consumers(done):
    (listed,) = results(done, "list --json")

    assert [(each["name"], each["status"]) for each in map(json.loads, listed.stdout.splitlines())] == [
        ("billing", "ACTIVE")
    ]


def test_deregister_removes_a_consumer(done):
    before, after = results(done, "list")

    assert [result.returncode for result in results(done, "deregister")] == [0]
    assert before.stdout == after.stdout == "CONSUMER  STATUS  ARN\n"


def test_the_error_for_an_unknown_consumer_names_the_registered_ones(done):
    (wrong,) = results(done, "unknown")

    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == "recordpublisher: orders has no consumer 'bill'; its consumers: billing\n"
