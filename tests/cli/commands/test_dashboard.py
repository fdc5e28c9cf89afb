"""`recordpublisher dashboard`: any job, from its stored positions and the tips of its shards."""

import json
import signal
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from recordpublisher.local import serve_in_thread

from processes.command_line import command, process_environment
from processes.forked.command import PipedCommand
from processes.job_files import job_file


@pytest.fixture
def job(tmp_path):
    """Of two streams, one with a record; it stores no positions."""
    with serve_in_thread(streams={"orders": 2, "returns": 1}) as served:
        served.stream("orders").put(b"x")
        streams = {"flink.streams": "orders,returns", "flink.stream.initpos": "TRIM_HORIZON"}
        sink = {"flink.sink": "callback", "flink.sink.callback.function": "builtins:len"}
        yield job_file(tmp_path, {**served.properties(), **streams, **sink})


@contextmanager
def dashboard(job, *options):
    """The URL of the running command."""
    arguments = ("dashboard", str(job), "--port", "0", *options)
    with PipedCommand(*arguments, environment=process_environment(), folder=job.parent) as process:
        try:
            yield process.stderr.readline().split()[-1]
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.fixture
def url(job):
    with dashboard(job) as url:
        yield url


def get(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as response:
        return response.read().decode()


def test_it_shows_the_shards_of_all_streams(url):
    snapshot = json.loads(get(f"{url}/snapshot.json"))

    assert sorted((each["stream"], each["shard"][-1]) for each in snapshot["shards"]) == [
        ("orders", "0"),
        ("orders", "1"),
        ("returns", "0"),
    ]
    assert {each["isHeld"] for each in snapshot["shards"]} == {None}


def test_without_stored_positions_it_says_so_and_creates_none(job, tmp_path):
    with dashboard(job, "-p", "flink.sink=jsonl", "-p", "flink.sink.jsonl.path=rows") as url:
        with pytest.raises(urllib.error.HTTPError) as failed:
            get(f"{url}/snapshot.json")

        place = "rows/.recordpublisher/entries"
        error = f"no positions are stored in {place}: are these the properties of the job?"
        assert json.load(failed.value) == {"error": error}
    assert not (tmp_path / "rows").exists()


def test_the_page_is_for_this_machine_only(url):
    assert "<!DOCTYPE html>" in get(url)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        get(url, Host="example.com")


def test_a_port_in_use_names_the_option(job, url):
    port = url.rpartition(":")[2]
    done = command("dashboard", str(job), "--port", port)

    assert done.returncode == 2
    assert done.stderr.startswith(f"recordpublisher: option '--port' is {port}: ")
