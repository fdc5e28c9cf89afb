"""`recordpublisher list` and `describe` against the embedded endpoint."""

import json
from datetime import UTC, datetime

import pytest

from recordpublisher.cli.stream_commands.describe import as_fields, as_text
from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.kinesis.management import ListedStream, StreamDescription
from recordpublisher.publishers.kinesis.ports import ConsumerDescription
from recordpublisher.publishers.shards import Shard

from processes.command_line import command

ARN = "arn:aws:kinesis:eu-west-1:000000000000:stream/orders"


def description(mode="PROVISIONED", encryption_key=None):
    stream = ListedStream("orders", ARN, "ACTIVE", mode, datetime(2026, 11, 22, 6, tzinfo=UTC))
    consumers = (ConsumerDescription("billing", f"{ARN}/consumer/billing:1", "ACTIVE"),)
    shards = (Shard("orders", "shardId-000000000000", closed=True), Shard("orders", "shardId-000000000001"))
    return StreamDescription(stream, 24, 1 << 20, True, encryption_key, consumers, shards)


def test_the_text_has_settings_and_shards():
    lines = as_text(description(encryption_key="alias/orders")).splitlines()

    assert "created            2026-11-22T06:00:00Z" in lines
    assert "retention          24 h" in lines
    assert "encryption         KMS key alias/orders" in lines
    assert "consumers          billing (ACTIVE)" in lines
    assert "shards             1 open, 1 closed" in lines
    assert [line.split()[:2] for line in lines[-2:]] == [
        ["shardId-000000000000", "closed"],
        ["shardId-000000000001", "open"],
    ]


def test_the_fields_have_the_consumers():
    assert as_fields(description())["consumers"] == [
        {"name": "billing", "arn": f"{ARN}/consumer/billing:1", "status": "ACTIVE"}
    ]


def test_the_limits_are_those_of_the_open_shards():
    assert "1,000 records/s and 1 MiB/s in; 2 MiB/s out by polling" in as_text(description())
    assert "the service changes the number of shards" in as_text(description(mode="ON_DEMAND"))


@pytest.fixture(scope="module")
def options():
    """The options that reach an endpoint with the streams `flights` and `returns`."""
    with serve_in_thread(streams={"flights": 2, "returns": 1}) as served:
        properties = served.call(served.endpoint.properties)
        yield [part for key, value in properties.items() for part in ("-p", f"{key}={value}")]


def test_describe_as_json(options):
    done = command("describe", "flights", "--json", *options)

    assert (done.returncode, done.stderr) == (0, "")
    described = json.loads(done.stdout)
    assert (described["name"], described["openShards"], described["retentionHours"]) == ("flights", 2, 24)
    assert described["shards"][1] == {
        "shardId": "shardId-000000000001",
        "parents": [],
        "closed": False,
        "startingHashKey": str(2**127),
        "endingHashKey": str(2**128 - 1),
    }


def test_list_as_json_has_one_line_for_each_stream(options):
    done = command("list", "--json", *options)

    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == ["flights", "returns"]


def test_an_unknown_stream_is_one_line_with_the_existing_ones(options):
    done = command("describe", "fligths", *options)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "recordpublisher: stream 'fligths' does not exist; existing streams: flights, returns\n"
