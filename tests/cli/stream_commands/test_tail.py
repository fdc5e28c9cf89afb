"""`recordpublisher tail` against the embedded endpoint: records, and one line for each error."""

import gzip
import json
import os
import signal

import pyarrow.parquet as pq
import pytest

import recordpublisher as rp
from recordpublisher.cli.stream_commands.tail import given_sequence_number, start_properties, time_ms
from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.initial_position import initial_position
from recordpublisher.publishers.positions import PositionType, StartingPosition

from processes.command_line import command, process_environment
from processes.forked.command import PipedCommand

EFO = {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "tail"}


@pytest.fixture(scope="module")
def endpoint():
    """A stream of two shards with ten flights, and the keys that it accepts."""
    with serve_in_thread(streams={"flights": 2, "returns": 1}, credentials={"me": "s3cr3t"}) as served:
        for number in range(10):
            served.call(served.endpoint.stream("flights").put, b"flight %d" % number, str(number))
        yield served


def pairs(endpoint, **changed: str) -> list[str]:
    properties = {**endpoint.call(endpoint.endpoint.properties), **EFO, **changed}
    return [part for key, value in properties.items() for part in ("-p", f"{key}={value}")]


def tail(endpoint, *arguments: str, stream: str = "flights", **changed: str):
    return command("tail", stream, *pairs(endpoint, **changed), *arguments)


def test_no_follow_prints_every_record_from_the_oldest_on_and_ends(endpoint):
    done = tail(endpoint, "--no-follow")

    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(line["data"] for line in lines) == [f"flight {number}" for number in range(10)]
    assert {line["shardId"] for line in lines} == {"shardId-000000000000", "shardId-000000000001"}


@pytest.mark.parametrize("verbose_first", [True, False])
def test_verbose_shows_what_happens_before_and_after_the_commands_name(endpoint, verbose_first):
    arguments = ["tail", "flights", *pairs(endpoint), "--no-follow"]
    done = command("-v", *arguments) if verbose_first else command(*arguments, "-v")

    assert (done.returncode, len(done.stdout.splitlines())) == (0, 10)
    assert "reads 2 shards of flights" in done.stderr
    assert "begins at TRIM_HORIZON" in done.stderr
    assert "the run ended: TIP, 10 records" in done.stderr


def test_a_limit_ends_the_command(endpoint):
    done = tail(endpoint, "--limit", "3", **{"flink.stream.initpos": "TRIM_HORIZON"})

    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 3


def test_only_records_that_match_are_printed_and_counted(endpoint):
    done = tail(endpoint, "--from", "TRIM_HORIZON", "--key", "[3-9]", "--grep", "flight [5-9]", "-n", "5")

    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(json.loads(line)["data"] for line in done.stdout.splitlines()) == [
        f"flight {n}" for n in range(5, 10)
    ]


def test_several_streams_until_a_time(endpoint):
    endpoint.call(endpoint.endpoint.stream("returns").put, b'{"id": 1}', "a")
    reached = command("tail", "flights", "returns", *pairs(endpoint), "--until", "2100-01-01T00:00:00Z")
    early = command("tail", "returns", *pairs(endpoint), "--until", "2020-01-01T00:00:00Z")

    assert (reached.returncode, reached.stderr, len(reached.stdout.splitlines())) == (0, "", 11)
    assert '"data":{"id":1}' in reached.stdout
    assert (early.returncode, early.stderr, early.stdout) == (0, "", "")


def test_a_closed_pipe_ends_the_command_without_an_error(endpoint):
    read_end, output = os.pipe()
    os.close(read_end)
    with os.fdopen(output, "wb") as stdout:
        done = command("tail", "flights", *pairs(endpoint), "--no-follow", stdout=stdout.fileno())

    assert (done.returncode, done.stderr) == (0, "")


def test_columns_are_written_to_a_file(endpoint, tmp_path):
    path = tmp_path / "flights.parquet"
    done = tail(endpoint, "--no-follow", "--key", "[3-9]", "--format", "parquet", "-o", str(path))

    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert sorted(pq.read_table(path)["data"].to_pylist()) == [b"flight %d" % number for number in range(3, 10)]


def test_pairs_override_the_properties_file(endpoint, tmp_path):
    job = tmp_path / "job.properties"
    properties = {**endpoint.call(endpoint.endpoint.properties), **EFO, "flink.stream.recordpublisher": "NONE"}
    job.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    done = command(
        "tail",
        "flights",
        "--properties",
        str(job),
        "-p",
        "flink.stream.recordpublisher=EFO",
        "--no-follow",
        "--limit",
        "1",
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_following_shows_new_records_and_exits_0_when_stopped(endpoint):
    watch = ("tail", "flights", *pairs(endpoint), "-p", "flink.stream.initpos=TRIM_HORIZON")
    with PipedCommand(*watch, environment=process_environment()) as process:
        for _ in range(10):
            process.stdout.readline()
        endpoint.call(endpoint.endpoint.stream("flights").put, b"new", "key")
        assert json.loads(process.stdout.readline())["data"] == "new"

        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == ""


WRONG = [
    ({"aws.credentials.provider.basic.secretkey": "wrong"}, 1, "SignatureDoesNotMatch|InvalidSignatureException"),
    ({"aws.credentials.provider.basic.accesskeyid": "nobody"}, 1, "UnrecognizedClientException"),
    ({"aws.endpoint": "nowhere"}, 2, "property 'aws.endpoint' is 'nowhere'"),
    ({"aws.endpoint": "http://127.0.0.1:1", "flink.list.shards.maxretries": "0"}, 1, "http://127.0.0.1:1"),
    ({"flink.stream.initpos": "AT_TIMESTAMP"}, 2, "property 'flink.stream.initpos.timestamp' is required"),
    (
        {"flink.stream.initpos": "AT_TIMESTAMP", "flink.stream.initpos.timestamp": "yesterday"},
        2,
        "property 'flink.stream.initpos.timestamp' is 'yesterday'",
    ),
    ({"flink.shard.idle.interval": "soon"}, 2, "property 'flink.shard.idle.interval' is 'soon'"),
]


@pytest.mark.parametrize(("changed", "code", "words"), WRONG)
def test_an_error_is_one_line(endpoint, changed, code, words):
    done = tail(endpoint, "--no-follow", **changed)

    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert any(word in done.stderr for word in words.split("|")), done.stderr
    assert "s3cr3t" not in done.stderr


def test_an_unknown_stream_is_reported_with_the_existing_ones(endpoint):
    done = tail(endpoint, stream="fligths")

    assert done.returncode == 1
    assert done.stderr == "recordpublisher: stream 'fligths' does not exist; existing streams: flights, returns\n"


def test_a_job_in_place_of_a_stream_is_told_with_what_was_meant(tmp_path):
    done = command("tail", str(tmp_path / "pg.properties"))

    assert done.returncode == 2
    assert "it is a job" in done.stderr
    assert f"STREAM --properties {tmp_path / 'pg.properties'}" in done.stderr


NOW_MS = 1_795_000_000_000


def position(start=None, since=None):
    return initial_position(rp.Properties(start_properties(start, since, NOW_MS)))


def test_without_both_the_properties_decide():
    assert start_properties(None, None, NOW_MS) == {}


@pytest.mark.parametrize("name", ["TRIM_HORIZON", "latest"])
def test_a_name_is_taken_in_any_case(name):
    assert position(start=name) == StartingPosition(PositionType(name.upper()))


@pytest.mark.parametrize("given", ["2023-11-14T22:13:20Z", "2023-11-14T23:13:20+01:00", "1700000000"])
def test_a_time(given):
    assert position(start=given) == StartingPosition.at_timestamp(1_700_000_000_000)


@pytest.mark.parametrize(
    ("given", "ms"), [("250ms", 250), ("30s", 30_000), ("10m", 600_000), ("2 h", 7_200_000), ("1d", 86_400_000)]
)
def test_an_age(given, ms):
    assert position(since=given) == position(start=given) == StartingPosition(PositionType.LATEST, ago_ms=ms)


@pytest.mark.parametrize(
    ("option", "start", "since"),
    [
        ("--from", "yesterday", None),
        ("--from", "", None),
        ("--since", None, "10"),
        ("--since", None, "-5m"),
        ("--since", "LATEST", "10m"),
    ],
)
def test_what_cannot_be_used_names_the_option(option, start, since):
    with pytest.raises(rp.ConfigurationError) as raised:
        start_properties(start, since, NOW_MS)
    assert raised.value.key == option


def test_a_start_in_the_future_names_its_option():
    with pytest.raises(rp.ConfigurationError, match=r"'--from' .*a time that has passed: it is 2026-11"):
        start_properties("2999-01-01T00:00Z", None, NOW_MS)


def test_the_end_names_its_option_too():
    with pytest.raises(rp.ConfigurationError, match="--until"):
        time_ms("--until", "tomorrow")


def test_a_sequence_number_is_no_time():
    sequence_number = "49017953680501650000000000000000000001795369627343000002"

    assert given_sequence_number(sequence_number) == sequence_number
    assert start_properties(sequence_number, None, NOW_MS) == {}
    assert given_sequence_number("1700000000") is given_sequence_number("LATEST") is None
    with pytest.raises(rp.ConfigurationError, match="both say where to start"):
        start_properties(sequence_number, "10m", NOW_MS)


def test_a_small_number_is_a_sequence_number_of_a_plugins_shard_and_otherwise_a_time():
    assert given_sequence_number("17", is_short=True) == "17"
    assert start_properties("17", None, NOW_MS, is_short=True) == {}
    assert given_sequence_number("1700000000", is_short=True) is given_sequence_number("17") is None


@pytest.mark.parametrize("policy", ["FAIL", "SKIP", "DEAD_LETTER"])
@pytest.mark.parametrize("place", [(), ("--shard", "shardId-000000000000")])
def test_a_record_that_the_job_cannot_use_is_shown_as_it_was_read(policy, place):
    with serve_in_thread(streams={"orders": 1}) as served:
        for payload in (b'{"at": 1700000000007}', b"no json", gzip.compress(b'{"at": 1700000000009}')):
            served.call(served.endpoint.stream("orders").put, payload, "key")
        job = {
            **served.endpoint.properties(),
            "flink.deserializer": "json",
            "flink.deserializer.compression": "GZIP",
            "flink.deserializer.error": policy,
            "flink.watermark.timestamp.field": "at",
        }
        given = [part for key, value in job.items() for part in ("-p", f"{key}={value}")]
        done = command("tail", "orders", *given, "--no-follow", *place)

    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["data"] for line in lines] == [{"at": 1700000000007}, "no json", {"at": 1700000000009}]
    assert lines[2]["eventTime"] == 1700000000009


def test_a_tail_with_the_properties_of_a_job_does_not_act_as_the_job(endpoint, tmp_path):
    of_job = {"flink.state.uri": str(tmp_path / "state"), "flink.job.workers": "GROUP"}

    done = [tail(endpoint, "--from", "TRIM_HORIZON", "--no-follow", **of_job) for _ in range(2)]

    assert [each.returncode for each in done] == [0, 0]
    assert done[0].stdout == done[1].stdout != ""
    assert not (tmp_path / "state").exists()
    assert len(command("consumers", "list", "flights", *pairs(endpoint)).stdout.splitlines()) == 1, "only the head"


def test_the_schema_of_objects_is_printed_whatever_the_job_reads_them_as():
    with serve_in_thread(streams={"orders": 1}) as served:
        served.stream("orders").put({"id": 1, "address": {"country": "NO"}})
        served.stream("orders").put({"id": 2, "paid": True})
        given = {**served.properties(), "flink.deserializer.schema": "id DATE"}
        options = [part for key, value in given.items() for part in ("-p", f"{key}={value}")]
        done = command("tail", "orders", *options, "--no-follow", "--format", "schema")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "id BIGINT, address STRUCT<country: STRING>, paid BOOLEAN\n"
