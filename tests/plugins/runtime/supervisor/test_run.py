"""`recordpublisher run`, as a process: it drains on signals, names its errors, and leaves no process behind."""

import json
import signal
import socket
import sqlite3
import time
from collections import Counter
from contextlib import closing

import pytest

from recordpublisher.local import serve_in_thread
from recordpublisher.local.shard import ShardLog
from recordpublisher.plugins.runtime.stop_signals import REPEATED_SECONDS

from processes.job_files import children_of, end, job_file, start_job
from processes.process_faults import is_alive, kill

COUNT = 40


@pytest.fixture(scope="module")
def orders():
    with serve_in_thread(streams={"orders": 4}) as served:
        for number in range(COUNT):
            served.call(served.endpoint.stream("orders").put, b'{"number": %d}' % number, str(number))
        yield served


@pytest.fixture
def properties(orders, tmp_path):
    return {
        **orders.endpoint.properties(),
        "flink.streams": "orders",
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.job.name": "orders",
        "flink.deserializer": "json",
        "flink.sink": "sql",
        "flink.sink.sql.uri": f"sqlite:///{tmp_path}/job.db",
        "flink.state.checkpoint.interval": 200,
    }


def numbers(tmp_path):
    try:
        with closing(sqlite3.connect(tmp_path / "job.db", timeout=30)) as database:
            return sorted(json.loads(value)["number"] for (value,) in database.execute("select value from records"))
    except sqlite3.OperationalError:
        return []


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def reads_at_the_tip(monkeypatch):
    """The number of empty reads of each shard: at the third, all earlier records have been written to the sink."""
    counts, real = Counter(), ShardLog.read

    def read(log, *given):
        found = real(log, *given)
        counts[id(log)] += not found.fragments
        return found

    monkeypatch.setattr(ShardLog, "read", read)
    return counts


def test_sigterm_while_the_service_is_silent_at_the_start_exits_0(properties, tmp_path):
    fan_out = {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "c"}
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        job = start_job(job_file(tmp_path, {**properties, **fan_out, "aws.endpoint": endpoint}))
        with silent.accept()[0]:
            assert end(job, seconds=20) == 0


@pytest.mark.parametrize("parallelism", [1, 2])
def test_sigterm_drains_checkpoints_and_exits_0(properties, tmp_path, reads_at_the_tip, parallelism):
    path = job_file(tmp_path, {**properties, "flink.state.checkpoint.interval": -1})
    job = start_job(path, "--parallelism", str(parallelism))
    wait_until(lambda: sum(count >= 3 for count in reads_at_the_tip.values()) == 4)
    assert numbers(tmp_path) == [], "no checkpoint is due before the end"

    assert end(job) == 0
    assert numbers(tmp_path) == list(range(COUNT))
    assert f"{COUNT} records" in path.with_suffix(".err").read_text()


def test_a_second_sigterm_exits_at_once(properties, tmp_path):
    (tmp_path / "stuck.py").write_text(
        "import time\ndef write(batch):\n    print('stuck', flush=True)\n    time.sleep(600)\n"
    )
    path = job_file(tmp_path, {**properties, "flink.sink": "callback", "flink.sink.callback.function": "stuck:write"})
    out = tmp_path / "out"
    job = start_job(path, path=tmp_path, stdout=out)
    wait_until(lambda: "stuck" in out.read_text())

    job.send_signal(signal.SIGTERM)
    wait_until(lambda: "is draining" in path.with_suffix(".err").read_text())
    assert job.poll() is None, "a write that is going on is waited for"
    time.sleep(2 * REPEATED_SECONDS)
    assert end(job, seconds=60) == 1


def test_a_failed_worker_ends_the_job_with_its_error(properties, tmp_path):
    path = job_file(tmp_path, {**properties, "flink.watermark.timestamp.field": "missing"})
    job = start_job(path, "--parallelism", "2")

    assert job.wait(timeout=60) == 1
    told = path.with_suffix(".err").read_text()
    assert "cannot be deserialized" in told
    assert "failed with exit code 1; the job ends" in told
    assert "Traceback" not in told


@pytest.mark.slow
def test_a_killed_worker_ends_the_job_and_the_others_drain(properties, tmp_path):
    path = job_file(tmp_path, properties)
    job = start_job(path, "--parallelism", "2")
    wait_until(lambda: len(numbers(tmp_path)) == COUNT)
    victim, survivor = children_of(job.pid)
    kill(victim)

    assert job.wait(timeout=60) == 1
    assert not is_alive(survivor)
    assert "was killed by SIGKILL; the job ends" in path.with_suffix(".err").read_text()


@pytest.mark.slow
def test_workers_do_not_outlive_their_supervisor(properties, tmp_path):
    path = job_file(tmp_path, properties)
    job = start_job(path, "--parallelism", "2")
    wait_until(lambda: len(numbers(tmp_path)) == COUNT)
    workers = children_of(job.pid)
    kill(job.pid)
    job.wait()

    wait_until(lambda: not any(is_alive(pid) for pid in workers))
    assert path.with_suffix(".err").read_text().count("ended: STOPPED") == 2, "they drained"


WRONG = [
    ({"flink.streams": ""}, "flink.streams"),
    ({"flink.sink": "nowhere"}, "no sink of that name is installed"),
    ({"flink.job.name": ""}, "flink.job.name"),
    ({"flink.sink.sql.uri": "mysql://me:hunter2@host/db"}, "flink.sink.sql.uri"),
    ({"flink.state.uri": "pigeon://x"}, "flink.state.uri"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG, ids=str)
def test_a_bad_property_is_one_line_and_exit_code_2(properties, tmp_path, wrong, said):
    path = job_file(tmp_path, {key: value for key, value in {**properties, **wrong}.items() if value})
    job = start_job(path)

    assert job.wait(timeout=60) == 2
    (line,) = path.with_suffix(".err").read_text().splitlines()[:1]
    assert said in line
    assert "hunter2" not in line


@pytest.mark.slow
def test_several_workers_exit_with_2_for_a_bad_property_too(properties, tmp_path):
    job = start_job(job_file(tmp_path, {**properties, "flink.sink": "nowhere"}), "--parallelism", "2")
    assert job.wait(timeout=60) == 2


def json_lines(path):
    return [json.loads(line) for line in path.with_suffix(".err").read_text().splitlines()]


def test_json_logs_are_json_to_the_last_line(properties, tmp_path):
    path = job_file(tmp_path, {**properties, "flink.watermark.timestamp.field": "missing"})
    assert start_job(path, "--log-format", "json").wait(timeout=60) == 1

    last = json_lines(path)[-1]
    assert {"time", "level", "logger", "message"} <= set(last)
    assert (last["level"], last["process"]) == ("ERROR", 0)
    assert "cannot be deserialized" in last["message"]


def test_json_logs_have_the_progress(properties, tmp_path):
    path = job_file(tmp_path, properties)
    job = start_job(path, "--log-format", "json")
    wait_until(lambda: len(numbers(tmp_path)) == COUNT)
    assert end(job) == 0

    (progress,) = [line["progress"] for line in json_lines(path) if "progress" in line][-1:]
    assert progress["records"] == COUNT
    assert progress["open_shards"] == 4
