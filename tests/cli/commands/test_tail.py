"""`recordpublisher tail` against the embedded endpoint: records, and one line for each error."""

import asyncio
import gzip
import json
import os
import pty
import signal
import sys

import pyarrow.parquet as pq
import pytest

import recordpublisher as rp
from recordpublisher.cli.commands.tail import PrintedRate, given_sequence_number, start_properties, time_ms
from recordpublisher.local import serve_in_thread
from recordpublisher.local.stream import split
from recordpublisher.publishers.initial_position import initial_position
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from processes.command_line import command, process_environment, sdk_environment, several_commands
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
    words = f"stream 'fligths' does not exist in us-east-1 (from aws.region) at {endpoint.url}"
    assert done.stderr == f"recordpublisher: {words}; existing streams: flights, returns\n"


def test_a_job_in_place_of_a_stream_is_told_with_what_was_meant(tmp_path):
    done = command("tail", str(tmp_path / "pg.properties"))

    assert done.returncode == 2
    assert "a job was given instead of a stream" in done.stderr
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


@pytest.mark.parametrize("number", ["17", "1700000000", "1099511627848"])
def test_a_whole_number_is_a_sequence_number_of_a_plugins_shard_and_otherwise_a_time(number):
    assert given_sequence_number(number, is_own=True) == number
    assert start_properties(number, None, NOW_MS, is_own=True) == {}
    assert given_sequence_number(number) is None


@pytest.mark.parametrize("start", ["latest", "EARLIEST", "1h", "2026-11-22T06:00:00Z", "", " "])
def test_a_start_in_words_is_no_sequence_number_of_a_plugins_shard(start):
    assert given_sequence_number(start, is_own=True) is None


def test_another_text_is_a_sequence_number_of_a_plugins_shard():
    assert given_sequence_number("1790000000009-2", is_own=True) == "1790000000009-2"
    assert given_sequence_number("1790000000009-2") is None


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


def test_a_tail_that_cannot_tell_event_times_says_so_once():
    with serve_in_thread(streams={"orders": 1}) as served:
        for payload in (b"\x01", b"\x02"):
            served.call(served.endpoint.stream("orders").put, payload, "key")
        job = {**served.properties(), "flink.deserializer": "avro", "flink.watermark.timestamp.field": "at"}
        given = [part for key, value in job.items() for part in ("-p", f"{key}={value}")]
        done = command("tail", "orders", *given, "--no-follow")

    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)
    assert (
        done.stderr.count("is shown as its arrival: flink.watermark.timestamp.field names a field of decoded values")
        == 1
    )


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


def test_a_printed_schema_has_the_fields_of_the_jobs_partitions_with_their_types():
    with serve_in_thread(streams={"orders": 1}) as served:
        served.stream("orders").put({"id": 1, "at": "2026-11-26T06:00:00Z", "of": {"x": 1}})
        pattern = "dt={eventTime:%Y}/day={at:%d}/country={of.country}"
        given = {**served.properties(), "flink.sink.partitions": pattern}
        options = [part for key, value in given.items() for part in ("-p", f"{key}={value}")]
        done = command("tail", "orders", *options, "--no-follow", "--format", "schema")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "id BIGINT, at TIMESTAMP, of STRUCT<x: BIGINT, country: STRING>\n"


PLUGIN = """
import recordpublisher as rp
from recordpublisher.publishers.base import QueueSource


class Reading(rp.RecordPublisher):
    def __init__(self, shard, start):
        self.shard = shard
        self.next = int(start.sequence_number or 1) + (start.type is rp.PositionType.AFTER_SEQUENCE_NUMBER)

    async def run(self, consumer):
        for number in range(self.next, 4):
            record = rp.UserRecord(f"{self.shard.shard_id}{number}".encode(), str(number), 1.0, "key")
            last = rp.SequenceNumber(str(number))
            await consumer(rp.RecordBatch(self.shard, [record], read_position=last, raw_count=1, raw_bytes=2))
        return rp.RunResult.COMPLETE


class Shelf(rp.RecordPublisherFactory):
    def __init__(self, properties):
        pass

    async def discover(self, stream):
        return [rp.Shard(stream, each, closed=True) for each in "ab"]

    async def create(self, shard, starting_position, metrics):
        return Reading(shard, starting_position)


class Entry(rp.RecordPublisher):
    NUMBERS = ["9-1", "9-2", "9-10"]

    def __init__(self, shard, start):
        self.shard = shard
        self.numbers = self.NUMBERS[self.NUMBERS.index(start.sequence_number or "9-1"):]

    async def run(self, consumer):
        for number in self.numbers:
            record = rp.UserRecord(number.encode(), number, 1.0, "key")
            last = rp.SequenceNumber(number)
            await consumer(rp.RecordBatch(self.shard, [record], read_position=last, raw_count=1, raw_bytes=2))
        return rp.RunResult.COMPLETE


class Log(Shelf):
    async def create(self, shard, starting_position, metrics):
        return Entry(shard, starting_position)

    def order_of(self, sequence):
        return tuple(map(int, sequence.split("-")))


class Letters(QueueSource):
    pass


@rp.hookimpl
def recordpublisher_register_publishers(registry):
    registry.add("SHELF", Shelf)
    registry.add("LETTERS", Letters)
    registry.add("LOG", Log)
"""


@pytest.fixture
def site(tmp_path):
    (tmp_path / "shelf.py").write_text(PLUGIN)
    info = tmp_path / "shelf-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text("[recordpublisher]\nmine = shelf\n")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (["--shard", "a", "--no-follow"], ["a1", "a2", "a3"]),
        (["--shard", "b", "--from", "2", "-n", "1"], ["b2"]),
        (["--shard", "b", "--from", f"{2:056}", "-n", "2"], ["b2", "b3"]),
    ],
)
def test_shards_are_those_that_the_publisher_lists(site, options, printed):
    done = command("tail", "books", *options, "-p", "flink.stream.recordpublisher=SHELF", path=site)

    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line)["data"] for line in done.stdout.splitlines()] == printed


def test_a_sequence_number_is_what_the_publisher_can_order(site):
    options = ["tail", "books", "--shard", "a", "--from", "9-2", "--no-follow", "-p"]
    done = command(*options, "flink.stream.recordpublisher=LOG", path=site)

    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line)["data"] for line in done.stdout.splitlines()] == ["9-2", "9-10"]

    done = command(*options, "flink.stream.recordpublisher=SHELF", path=site)

    assert (done.returncode, done.stdout) == (2, "")
    assert "'--from' is '9-2'" in done.stderr
    assert "Valid: a sequence number, " in done.stderr


def test_the_publisher_gets_the_name_of_a_stream_that_is_given_as_an_arn(site):
    arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/books"
    done = command("tail", arn, "--shard", "a", "--no-follow", "-p", "flink.stream.recordpublisher=SHELF", path=site)

    assert (done.returncode, done.stderr) == (0, "")
    assert {json.loads(line)["stream"] for line in done.stdout.splitlines()} == {"books"}


def test_an_unknown_shard_is_answered_with_those_of_the_publisher(site):
    done = command("tail", "books", "--shard", "c", "-p", "flink.stream.recordpublisher=SHELF", path=site)

    assert done.returncode == 2
    assert "'--shard' is 'c'. Valid: a shard of the stream: a, b" in done.stderr


def test_a_queue_is_answered_with_what_reads_shards(site):
    done = command("tail", "letters", "-p", "flink.stream.recordpublisher=LETTERS", path=site)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert (
        "this command would take the records from the queue. Valid: the name of a publisher that reads shards"
        in done.stderr
    )


@pytest.mark.parametrize(
    "words", [["lag", "letters"], ["lag", "letters", "--watch"], ["lag", "JOB"], ["dashboard", "JOB"]]
)
def test_lag_of_a_queue_does_not_look_for_it_in_kinesis(site, words):
    job = site / "job.properties"
    job.write_text("flink.streams=letters\nflink.sink=memory\n")
    given = [str(job) if word == "JOB" else word for word in words]
    done = command(*given, "-p", "flink.stream.recordpublisher=LETTERS", "-p", "aws.region=eu-west-1", path=site)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "'flink.stream.recordpublisher' is 'LETTERS': this publisher reads a queue that is not" in done.stderr
    assert "Valid: lag --live URL" in done.stderr
    assert "positions show" not in done.stderr


@pytest.mark.parametrize("words", [["describe", "books"], ["delete", "books", "--yes"]])
def test_a_command_for_streams_of_kinesis_refuses_a_plugins_publisher(site, words):
    done = command(*words, "-p", "flink.stream.recordpublisher=SHELF", path=site)

    assert (done.returncode, done.stdout) == (2, "")
    assert "this publisher lists its streams itself, and this command works only with streams of Kinesis" in done.stderr


def shown(monkeypatch, capsys, is_terminal):
    """What is said about 30 records in the first ten seconds, and none in the next 25."""

    async def run():
        rate = PrintedRate(VirtualClock())
        async with rate.shown():
            await asyncio.sleep(5)
            rate.add(30)
            await asyncio.sleep(30)

    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    run_virtual(run())
    return capsys.readouterr().err.splitlines()


def test_a_terminal_is_told_now_and_then_and_at_the_end(monkeypatch, capsys):
    assert shown(monkeypatch, capsys, True) == [
        "recordpublisher: 30 records in 10.0 s (3.0 a second)",
        "recordpublisher: 30 records in 35.0 s (0.9 a second)",
    ]


def test_a_pipe_stays_quiet(monkeypatch, capsys):
    assert shown(monkeypatch, capsys, False) == []


def test_a_read_to_the_tips_that_gets_nothing_more_says_what_it_waits_for(capsys):
    async def run():
        rate = PrintedRate(VirtualClock())
        async with rate.shown(waits_for_tip=True):
            await asyncio.sleep(5)
            rate.add(30)
            await asyncio.sleep(90)

    run_virtual(run())

    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("recordpublisher: no record for 15 s. The command ends when each shard is at its tip")


def test_records_go_to_stdout_and_their_rate_to_the_terminal():
    ours, terminal = pty.openpty()
    with serve_in_thread(streams={"orders": 1}) as served:
        served.call(served.endpoint.stream("orders").put, b"1", "k")
        done = command("tail", "orders", "--no-follow", stderr=terminal, **sdk_environment(served))
    os.close(terminal)
    said = os.read(ours, 10_000).decode()
    os.close(ours)

    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert said.startswith("recordpublisher: 1 record in ")


FIRST, SECOND, LEFT, RIGHT = (f"shardId-{number:012}" for number in range(4))
LOW, HIGH = 0, 2**127
EFO_OPTIONS = "-p flink.stream.recordpublisher=EFO -p flink.stream.efo.consumername=tail"


@pytest.fixture(scope="module")
def done():
    """What each command printed; the first shard was split after its fourth record, and each shard has records."""
    with serve_in_thread(streams={"flights": 2, "returns": 1}) as served:
        numbers = served.call(fill, served.endpoint.stream("flights"))
        commands = {
            "one": f"tail flights --shard {FIRST} --no-follow",
            "two": f"tail flights --shard {SECOND} --shard {RIGHT} --until 2100-01-01T00:00:00Z",
            "sequence": f"tail flights --shard {FIRST} --from {numbers[2]} --no-follow",
            "fan-out": f"tail flights --shard {FIRST} --from {numbers[1]} {EFO_OPTIONS}",
            "ended": f"tail flights --shard {FIRST} --from TRIM_HORIZON",
            "limit": f"tail flights --shard {RIGHT} --from TRIM_HORIZON -n 1",
            "grep": f"tail flights --shard {FIRST} --no-follow --grep [02]",
            "unknown": "tail flights --shard shardId-7",
            "two streams": f"tail flights returns --shard {FIRST}",
            "no shard": f"tail flights --from {numbers[0]}",
        }
        results = several_commands(served, *map(str.split, commands.values()))
    return dict(zip(commands, results, strict=True))


def fill(stream):
    """Put records into every shard; the sequence numbers of those of the first."""
    numbers = [stream.put(b"%d" % number, "key", LOW) for number in range(4)]
    stream.put(b"second", "key", HIGH)
    split(stream, stream.shard(FIRST), 2**126)
    stream.put(b"left", "key", LOW)
    for data in (b"right", b"more"):
        stream.put(data, "key", 2**126)
    return numbers


def printed(result):
    assert (result.returncode, result.stderr) == (0, "")
    return [json.loads(line)["data"] for line in result.stdout.splitlines()]


def test_only_the_records_of_the_shard_are_printed(done):
    assert printed(done["one"]) == ["0", "1", "2", "3"]


def test_several_shards_also_a_child_whose_parent_is_not_read(done):
    assert sorted(printed(done["two"])) == ["more", "right", "second"]


def test_a_sequence_number_is_where_the_reading_starts(done):
    assert printed(done["sequence"]) == ["2", "3"]


def test_by_fan_out(done):
    assert printed(done["fan-out"]) == ["1", "2", "3"]


def test_a_closed_shard_ends_the_command_and_its_children_are_not_read(done):
    assert printed(done["ended"]) == ["0", "1", "2", "3"]


def test_limit_and_patterns_are_kept(done):
    assert printed(done["limit"]) == ["right"]
    assert printed(done["grep"]) == ["0", "2"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "unknown",
            f"'--shard' is 'shardId-7'. Valid: a shard of the stream: {FIRST}, {SECOND}, {LEFT}, {RIGHT}",
        ),
        ("two streams", "'--shard' needs exactly one stream: 2 were given"),
        ("no shard", "needs exactly one --shard: a sequence number is a position in one shard"),
    ],
)
def test_wrong_options_are_one_line(done, name, words):
    assert (done[name].returncode, done[name].stdout) == (2, "")
    assert done[name].stderr.count("\n") == 1
    assert words in done[name].stderr
