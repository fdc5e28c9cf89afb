"""The commands that list, describe, create, delete and reshard streams, against the embedded endpoint."""

import json
import signal
import socket
import time
from datetime import UTC, datetime

import pytest

from recordpublisher.cli.commands.streams import stream_fields, stream_text
from recordpublisher.local import Delays, serve_in_thread
from recordpublisher.publishers.kinesis.management import ListedStream, StreamDescription
from recordpublisher.publishers.kinesis.ports import ConsumerDescription
from recordpublisher.publishers.shards import Shard

from processes.command_line import command, process_environment, sdk_environment, several_commands
from processes.forked.command import PipedCommand

FIRST, SECOND, *CHILDREN = (f"shardId-{number:012}" for number in range(6))


@pytest.fixture(scope="module")
def done():
    """What each command did, by its words; one after the other on the stream `orders` of two shards."""
    commands = [
        "create events --shards 3",
        "create alerts --on-demand --no-wait",
        "create events --shards 3",
        "create more",
        "create more --on-demand --shards 2",
        "create wrong --shards 3",
        "create large --shards 1 --max-record-size 3072",
        "create larger --shards 1 --max-record-size 10241",
        "delete wrong",
        "delete events --yes",
        "delete absent --yes",
        f"split orders {FIRST}",
        f"split orders {FIRST} --at 7",
        f"split orders {SECOND} --at {3 * 2**126}",
        f"split orders {SECOND} --at half",
        f"split orders {CHILDREN[0]} --at {2**126}",
        f"merge orders {CHILDREN[3]} {CHILDREN[0]}",
        f"merge orders {CHILDREN[2]} {CHILDREN[1]}",
    ]
    with serve_in_thread(streams={"orders": 2}) as served:
        results = several_commands(served, *map(str.split, commands))
        yield served, [*zip(commands, results, strict=True)]


def result(done, words, place=0):
    return [each for command, each in done[1] if command.startswith(words)][place]


def test_create_makes_a_stream_and_prints_its_arn(done):
    created = result(done, "create events")

    assert (created.returncode, created.stderr) == (0, "")
    assert created.stdout == "arn:aws:kinesis:us-east-1:000000000000:stream/events\n"
    assert len(done[0].endpoint.stream("wrong").open_shards) == 3


def test_delete_removes_a_stream_and_prints_its_arn(done):
    deleted = result(done, "delete events")

    assert (deleted.returncode, deleted.stderr) == (0, "")
    assert deleted.stdout == "arn:aws:kinesis:us-east-1:000000000000:stream/events\n"
    assert "events" not in done[0].endpoint.account.streams()


def test_delete_needs_a_yes_and_says_what_it_would_delete(done):
    asked = result(done, "delete wrong")

    assert (asked.returncode, asked.stdout) == (2, "")
    assert (
        "the command would delete arn:aws:kinesis:us-east-1:000000000000:stream/wrong with all its records"
        in asked.stderr
    )
    assert "wrong" in done[0].endpoint.account.streams()


def test_a_stream_that_does_not_exist_is_not_deleted(done):
    absent = result(done, "delete absent")

    assert absent.returncode == 1
    assert "stream 'absent' does not exist" in absent.stderr


def test_create_on_demand(done):
    assert result(done, "create alerts").returncode == 0
    assert done[0].endpoint.stream("alerts").mode == "ON_DEMAND"


def test_a_stream_that_exists_is_an_error(done):
    again = result(done, "create events", 1)

    assert (again.returncode, again.stdout) == (1, "")
    assert "Stream events under account 000000000000 already exists." in again.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("create more", "option '--shards' is required. Valid: a number of shards, or --on-demand instead of it"),
        ("create more --on-demand --shards 2", "option '--shards' cannot be combined with '--on-demand'"),
    ],
)
def test_create_needs_a_number_of_shards_or_on_demand(done, words, said):
    wrong = result(done, words)

    assert wrong.returncode == 2
    assert said in wrong.stderr


def test_create_takes_the_size_of_the_largest_record(done):
    created = result(done, "create large")

    assert created.returncode == 0, created.stderr
    assert done[0].endpoint.stream("large").max_record_bytes == 3 * 2**20


def test_a_size_that_no_stream_can_have_is_refused_before_any_call(done):
    wrong = result(done, "create larger")

    assert wrong.returncode == 2
    assert "less than or equal to 10240" in wrong.stderr
    assert "larger" not in done[0].endpoint.account.streams()


def test_split_halves_a_shard_and_prints_its_children(done):
    split = result(done, f"split orders {FIRST}")

    assert (split.returncode, split.stdout, split.stderr) == (0, f"{CHILDREN[0]}\n{CHILDREN[1]}\n", "")
    assert done[0].endpoint.stream("orders").shards[CHILDREN[1]].hash_range.start == 2**126


def test_split_at_a_hash_key(done):
    assert result(done, f"split orders {SECOND}").stdout.split() == CHILDREN[2:4]
    assert done[0].endpoint.stream("orders").shards[CHILDREN[3]].hash_range.start == 3 * 2**126


def test_a_hash_key_is_a_number(done):
    assert "option '--at' is 'half'" in result(done, f"split orders {SECOND}", 1).stderr


def test_a_hash_key_outside_the_shard_is_refused_with_its_range(done):
    outside = result(done, f"split orders {CHILDREN[0]}")

    assert (outside.returncode, outside.stdout) == (2, "")
    assert outside.stderr.endswith(f"Valid: a hash key of {CHILDREN[0]} after its first: 1 to {2**126 - 1}\n")


def test_create_prints_nothing_when_it_is_interrupted():
    with (
        serve_in_thread(delays=Delays(create_stream=3_600_000)) as served,
        PipedCommand(
            "create", "events", "--shards", "1", environment=process_environment(**sdk_environment(served))
        ) as process,
    ):
        while "events" not in served.endpoint.account.streams():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 130


def test_a_closed_shard_is_an_error_that_names_the_open_ones(done):
    closed = result(done, f"split orders {FIRST}", 1)

    assert closed.returncode == 2
    assert f"Valid: an open shard of the stream: {SECOND}, {CHILDREN[0]}, {CHILDREN[1]}" in closed.stderr


def test_merge_takes_two_adjacent_shards_in_any_order(done):
    apart, merged = result(done, "merge"), result(done, "merge", 1)

    assert apart.returncode == 2
    assert f"Valid: the open shard before or after {CHILDREN[3]} by hash keys" in apart.stderr
    assert (merged.returncode, merged.stdout) == (0, "shardId-000000000006\n")


ARN = "arn:aws:kinesis:eu-west-1:000000000000:stream/orders"


def description(mode="PROVISIONED", encryption_key=None):
    stream = ListedStream("orders", ARN, "ACTIVE", mode, datetime(2026, 11, 22, 6, tzinfo=UTC))
    consumers = (ConsumerDescription("billing", f"{ARN}/consumer/billing:1", "ACTIVE"),)
    shards = (Shard("orders", "shardId-000000000000", closed=True), Shard("orders", "shardId-000000000001"))
    return StreamDescription(stream, 24, 1 << 20, True, encryption_key, consumers, shards)


def test_the_text_has_settings_and_shards():
    lines = stream_text(description(encryption_key="alias/orders")).splitlines()

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
    assert stream_fields(description())["consumers"] == [
        {"name": "billing", "arn": f"{ARN}/consumer/billing:1", "status": "ACTIVE"}
    ]


def test_the_limits_are_those_of_the_open_shards():
    assert "1,000 records/s and 1 MiB/s in; 2 MiB/s out by polling" in stream_text(description())
    assert "the service changes the number of shards" in stream_text(description(mode="ON_DEMAND"))


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
    assert done.stderr.startswith(
        "recordpublisher: stream 'fligths' does not exist in us-east-1 (from aws.region) at http://127.0.0.1:"
    )
    assert done.stderr.endswith("; existing streams: flights, returns\n")


def test_an_interrupted_list_prints_no_empty_table():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        keys = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        with PipedCommand("list", "--endpoint", endpoint, environment=process_environment(**keys)) as process:
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 130


ARN_CONSUMERS = "arn:aws:kinesis:us-east-1:000000000000:stream/orders/consumer/billing:"


@pytest.fixture(scope="module")
def done_consumers():
    """What each command did, one after the other."""
    commands = ["list", "register", "register", "list --json", "unknown", "deregister", "list"]
    lines = {"list": "list orders", "list --json": "list orders --json", "unknown": "deregister orders bill"}
    with serve_in_thread(streams={"orders": 1}, delays=Delays(consumer=0)) as served:
        given = [["consumers", *lines.get(one, f"{one} orders billing").split()] for one in commands]
        results = several_commands(served, *given)
    return [*zip(commands, results, strict=True)]


def results(done_consumers, command):
    return [result for name, result in done_consumers if name == command]


def test_register_prints_the_arn_also_of_a_consumer_that_is_registered(done_consumers):
    first, second = results(done_consumers, "register")

    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith(ARN_CONSUMERS)
    assert second.stdout == first.stdout


def test_list_shows_the_registered_consumers(done_consumers):
    (listed,) = results(done_consumers, "list --json")

    assert [(each["name"], each["status"]) for each in map(json.loads, listed.stdout.splitlines())] == [
        ("billing", "ACTIVE")
    ]


def test_deregister_removes_a_consumer(done_consumers):
    before, after = results(done_consumers, "list")

    assert [result.returncode for result in results(done_consumers, "deregister")] == [0]
    assert before.stdout == after.stdout == "CONSUMER  STATUS  ARN\n"


def test_the_error_for_an_unknown_consumer_names_the_registered_ones(done_consumers):
    (wrong,) = results(done_consumers, "unknown")

    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == "recordpublisher: orders has no consumer 'bill'; its consumers: billing\n"
