"""`recordpublisher run --dashboard` serves the shards of all workers, without any exporter."""

import json
import re
import time
import urllib.error
import urllib.request

import pytest

from recordpublisher.local import serve_in_thread

from processes.job_files import end, job_file, start_job

COUNT = 40


def wait_for(found, job):
    deadline = time.monotonic() + 60
    while not (value := found()):
        assert job.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        if error.code != 503:  # no worker has started
            raise
        return {"shards": []}


@pytest.fixture
def properties(tmp_path):
    with serve_in_thread(streams={"orders": 4}) as served:
        for number in range(COUNT):
            served.call(served.endpoint.stream("orders").put, b"%d" % number, str(number))
        yield {
            **served.endpoint.properties(),
            "flink.streams": "orders",
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.sink": "callback",
            "flink.sink.callback.function": "builtins:len",
        }


@pytest.mark.parametrize(
    ("options", "workers"), [(["--parallelism", "2"], {0, 1}), (["--group", "-p", "flink.state.uri=state"], {0})]
)
def test_one_page_has_the_shards_of_every_worker(properties, tmp_path, monkeypatch, options, workers):
    monkeypatch.chdir(tmp_path)
    job = start_job(job_file(tmp_path, properties), "--dashboard", *options)
    try:
        log = tmp_path / "job.err"
        url = wait_for(lambda: re.search(r"the dashboard is at (http://\S+)", log.read_text()), job)[1]

        def are_shared():  # the second worker takes its half from the first
            read = [each for each in get(f"{url}/snapshot.json")["shards"] if each["watermark"] is not None]
            return len(read) == 4 and {each["process"] for each in read} == workers

        wait_for(are_shared, job)
        snapshot = get(f"{url}/snapshot.json")
        assert {shard["shard"][-1] for shard in snapshot["shards"]} == set("0123")
        assert [each["responds"] for each in snapshot["workers"]] == [True] * len(workers)
        workers = {each["process"] for each in snapshot["workers"]}
        assert {shard["process"] for shard in snapshot["shards"]} == workers
        assert None not in workers
        assert end(job) == 0, log.read_text()
    finally:
        job.kill()
        job.wait()


def test_a_port_in_use_is_an_error_that_names_the_option(properties, tmp_path):
    port = properties["aws.endpoint"].rpartition(":")[2]
    job = start_job(job_file(tmp_path, properties), "--dashboard-port", port)

    assert job.wait(timeout=60) == 2
    assert f"option '--dashboard-port' is {port}: Address already in use" in (tmp_path / "job.err").read_text()
