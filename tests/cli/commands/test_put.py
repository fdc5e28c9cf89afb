"""`recordpublisher put` against the embedded endpoint."""

import asyncio
import os
import re
import signal

import pytest

from recordpublisher.cli.commands.put import MAX_LINE_BYTES, Pace, blocks_of_lines, partition_key
from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.testing import VirtualClock, run_virtual

from processes.command_line import command, process_environment
from processes.forked.command import PipedCommand


@pytest.fixture
def endpoint():
    with serve_in_thread(streams={"flights": 2}) as served:
        yield served


def options(endpoint):
    return [
        part for key, value in endpoint.call(endpoint.endpoint.properties).items() for part in ("-p", f"{key}={value}")
    ]


def stored(endpoint):
    """Key and data of every record of the stream."""
    done = command("tail", "flights", "--no-follow", *options(endpoint))
    return sorted(re.findall(r'"partitionKey":"(.*?)".*"data":(.*)}', done.stdout))


def test_each_line_of_the_files_is_a_record_with_the_key_of_its_field(endpoint, tmp_path):
    (tmp_path / "1").write_text('{"to":"LAX"}\n{"to":"JFK"}\n')
    (tmp_path / "2").write_text('{"to":"SFO"}')

    done = command("put", "flights", str(tmp_path / "1"), str(tmp_path / "2"), "--key-field", "to", *options(endpoint))

    assert (done.returncode, done.stdout) == (0, "")
    assert re.fullmatch(r"recordpublisher: put 3 records in [\d.]+ s \([\d,]+ a second\)\n", done.stderr)
    assert stored(endpoint) == [(key, f'{{"to":"{key}"}}') for key in ("JFK", "LAX", "SFO")]


def test_records_that_are_not_put_are_named_and_the_others_are_put(endpoint, tmp_path):
    (tmp_path / "lines").write_text('{"to":"LAX"}\nno json\n\n{"to":""}\n{"to":"JFK"}\n')

    done = command("put", "flights", str(tmp_path / "lines"), "--key-field", "to", *options(endpoint))

    assert done.returncode == 1
    first, second, count = done.stderr.splitlines()
    file = tmp_path / "lines"
    assert first.startswith(f"recordpublisher: not put: line 2 of {file}: 'no json': it is not a JSON")
    assert second.startswith(
        f"""recordpublisher: not put: line 4 of {file}: '{{"to":""}}': ValidationException: its partition key has 0"""
    )
    assert count.endswith(", 2 not put")
    assert [key for key, _ in stored(endpoint)] == ["JFK", "LAX"]


def test_lines_that_an_outage_has_outlasted_are_named_by_number(tmp_path):
    with serve_in_thread(streams={"flights": 2}, faults="error@PutRecords=1") as served:
        outage = ("-p", "flink.job.max.outage=300ms")
        done = command("put", "flights", "--aggregate", *outage, *options(served), stdin="1\n\n2\n")

    *failed, count = done.stderr.splitlines()
    assert done.returncode == 1
    assert sorted(line.split(": ")[2:4] for line in failed) == [["line 1", "'1'"], ["line 3", "'2'"]], done.stderr
    assert count.endswith(", 2 not put")


def test_an_outage_is_outlasted_as_by_any_other_producer():
    put = ("put", "flights", "--endpoint", "http://127.0.0.1:9", "--region", "us-east-1", "-p", "aws.http.client=SDK")
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    with PipedCommand(*put, environment=process_environment(**keys)) as process:
        told = process.stderr.readline()
        process.send_signal(signal.SIGINT)

        assert process.wait(timeout=60) == 0
    seconds = int(re.search(r"trying again, with pauses of up to (\d+) s in all", told)[1])
    assert 890 < seconds <= 900, told


def test_put_says_that_it_waits_for_the_rate_of_the_shards(tmp_path):
    lines = tmp_path / "lines"
    lines.write_text("x\n" * 700)
    with serve_in_thread(streams={"flights": 2}) as served:
        done = command("put", "flights", str(lines), "-p", "RateLimit=10", *options(served))

    waits, count = done.stderr.splitlines()
    assert re.fullmatch(
        r"recordpublisher: [\d,]+ records wait for the rate limit: 2 open shards get at most 200 records and 0.2 MiB a second "
        r"\(RateLimit=10; 100 is what Kinesis takes, 1,000 records and 1 MiB a second for each shard\)",
        waits,
    )
    assert count.startswith("recordpublisher: put 700 records in ")


def test_aggregates_of_standard_input(endpoint):
    done = command("put", "flights", "--key", "k", "--aggregate", *options(endpoint), stdin="1\n2\n3\n")

    assert done.returncode == 0, done.stderr
    assert stored(endpoint) == [("k", '"1"'), ("k", '"2"'), ("k", '"3"')]
    logs = endpoint.call(lambda: [len(shard.log) for shard in endpoint.endpoint.stream("flights").shards.values()])
    assert sorted(logs) == [0, 1]


def test_a_signal_ends_the_reading_and_what_was_read_is_put(endpoint):
    put = ("put", "flights", "--key", "k", *options(endpoint))
    with PipedCommand(*put, environment=process_environment()) as process:
        process.stdin.write("1\n")
        process.stdin.flush()
        wait_until_stored(endpoint)
        process.send_signal(signal.SIGINT)

        assert process.wait(timeout=60) == 0
        assert process.stderr.read().startswith("recordpublisher: put 1 record in ")


def test_a_signal_while_a_file_is_put_does_not_say_that_it_is_done(endpoint, tmp_path):
    (tmp_path / "lines").write_text("1\n2\n")
    put = ("put", "flights", str(tmp_path / "lines"), "--key", "k", "--rate", "0.001", *options(endpoint))
    with PipedCommand(*put, environment=process_environment()) as process:
        wait_until_stored(endpoint)
        process.send_signal(signal.SIGINT)

        assert process.wait(timeout=60) == 130
        assert process.stderr.read().startswith("recordpublisher: put 1 record in ")


def wait_until_stored(endpoint):
    """Follow the stream until it has a record."""
    assert command("tail", "flights", "--from", "TRIM_HORIZON", "-n", "1", *options(endpoint)).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("flights", "--key", "k", "--key-field", "to"), 2, "option '--key-field' cannot be combined with '--key'"),
        (("fligths",), 1, "stream 'fligths' does not exist in us-east-1 (from aws.region) at http://127.0.0.1:"),
    ],
)
def test_an_error_is_one_line(endpoint, arguments, code, words):
    done = command("put", *arguments, *options(endpoint))

    assert done.returncode == code
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def seconds_of(records, pace, clock):
    async def run():
        start = clock.monotonic()
        for _ in range(records):
            await pace.wait_for_turn()
        return clock.monotonic() - start

    return run()


def test_a_rate_spreads_the_records():
    async def run():
        return await seconds_of(21, Pace(10, VirtualClock()), VirtualClock())

    assert run_virtual(run()) == pytest.approx(2.0)


def test_after_a_long_wait_only_one_second_is_caught_up_on():
    async def run():
        pace, clock = Pace(10, VirtualClock()), VirtualClock()
        await pace.wait_for_turn()
        asyncio.get_running_loop().suspend(60)
        return await seconds_of(21, pace, clock)

    assert run_virtual(run()) == pytest.approx(1.0)


async def lines_of(*files):
    return [line.data async for block in blocks_of_lines(files) for line in block]


async def test_lines_come_without_ends_and_without_empty_ones(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"a\r\n\nb c\n\r\n")
    second.write_bytes(b"d\ne")

    assert await lines_of(first, second) == [b"a", b"b c", b"d", b"e"]


async def test_lines_are_numbered_in_each_file_empty_ones_too(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"a\n\nb\n")
    second.write_bytes(b"x" * 200_000 + b"\ny\nz")
    blocks = blocks_of_lines([first, second])

    assert [(line.file, line.number, line.data[:1]) async for block in blocks for line in block] == [
        (first, 1, b"a"), (first, 3, b"b"), (second, 1, b"x"), (second, 2, b"y"), (second, 3, b"z"),
    ]  # fmt: skip


async def test_a_line_may_be_longer_than_a_block(tmp_path):
    (tmp_path / "long").write_bytes(b"x" * 200_000 + b"\ny\n")

    assert [len(line) for line in await lines_of(tmp_path / "long")] == [200_000, 1]


async def test_a_file_without_line_ends_is_an_error_before_it_fills_the_memory(tmp_path):
    with (tmp_path / "endless").open("wb") as file:
        file.truncate(MAX_LINE_BYTES * 4)

    with pytest.raises(RecordPublisherError, match="endless: line 1 has more than 16,777,216 bytes"):
        await lines_of(tmp_path / "endless")


async def test_a_pipe_passes_each_line_on_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = asyncio.create_task(asyncio.to_thread(os.open, tmp_path / "pipe", os.O_WRONLY))
    blocks = blocks_of_lines([tmp_path / "pipe"])
    first = asyncio.ensure_future(anext(blocks))
    pipe = await writer

    os.write(pipe, b"one\ntw")
    assert [line.data for line in await first] == [b"one"]
    os.write(pipe, b"o\n")
    assert [(line.place, line.data) for line in await anext(blocks)] == [(f"line 2 of {tmp_path / 'pipe'}", b"two")]

    os.close(pipe)
    assert [block async for block in blocks if block] == []


def test_the_key_is_fixed_or_random():
    assert partition_key("k", None)(b"1") == "k"
    random = partition_key(None, None)
    assert random(b"1") != random(b"1")


def test_the_key_is_the_value_of_a_field():
    key_of = partition_key(None, "customer")

    assert [key_of(line) for line in (b'{"customer":"c1"}', b'{"customer":7}', b'{"customer":true}')] == [
        "c1",
        "7",
        "true",
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "it is not a JSON"),
        (b"\xff", "it is not a JSON"),
        (b"[1]", "it is not a JSON object"),
        (b'{"other":1}', "it has no field 'customer'"),
        (b'{"customer":null}', "it has no field 'customer'"),
    ],
)
def test_a_line_without_the_field_has_no_key(line, reason):
    with pytest.raises(ValueError, match=reason):
        partition_key(None, "customer")(line)
