"""`recordpublisher put` against the embedded endpoint."""

import asyncio
import re
import signal

import pytest

from recordpublisher.cli.stream_commands.put import Pace
from recordpublisher.local import serve_in_thread
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
    (tmp_path / "lines").write_text('{"to":"LAX"}\nno json\n{"to":""}\n{"to":"JFK"}\n')

    done = command("put", "flights", str(tmp_path / "lines"), "--key-field", "to", *options(endpoint))

    assert done.returncode == 1
    first, second, count = done.stderr.splitlines()
    assert first.startswith("recordpublisher: not put: 'no json': it is no JSON")
    assert second.startswith("""recordpublisher: not put: '{"to":""}': ValidationException: its partition key has 0""")
    assert count.endswith(", 2 not put")
    assert [key for key, _ in stored(endpoint)] == ["JFK", "LAX"]


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
        (("flights", "--key", "k", "--key-field", "to"), 2, "option '--key-field' has the value 'to'"),
        (("fligths",), 1, "stream 'fligths' does not exist; existing streams: flights"),
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
