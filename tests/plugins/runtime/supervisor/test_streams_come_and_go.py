"""A real job whose streams stand in a file: they come, leave and come back, over restarts, and each record is written once (S10)."""

import json
import sqlite3
import time
from contextlib import closing

import pytest

from recordpublisher.local import serve_in_thread

from processes.job_files import end, job_file, start_job


class Job:
    """Owns the streams, their file, and the process."""

    def __init__(self, served, folder, **properties):
        self._served = served
        self._folder = folder
        self.file = folder / "streams.txt"
        self.sent = set()
        self._path = job_file(
            folder,
            {
                **served.endpoint.properties(),
                "flink.streams.file": self.file,
                "flink.shard.discovery.intervalmillis": 100,
                "flink.stream.initpos": "TRIM_HORIZON",
                "flink.job.name": "many",
                "flink.sink": "sql",
                "flink.sink.sql.uri": f"sqlite:///{folder}/job.db",
                "flink.state.checkpoint.interval": 200,
                "flink.deserializer": "json",
                **properties,
            },
        )

    def start(self, *options):
        self.process = start_job(self._path, *options)

    def list(self, *streams):
        self.file.write_text("\n".join(streams))

    def create(self, stream):
        return self._served.call(self._served.endpoint.create_stream, stream, 2).arn

    def send(self, stream):
        for number in range(10):
            text = f"{stream} {len(self.sent)}"
            self._served.call(
                self._served.endpoint.stream(stream).put, json.dumps({"text": text}).encode(), str(number)
            )
            self.sent.add(text)

    def written(self):
        try:
            with closing(sqlite3.connect(self._folder / "job.db", timeout=30)) as database:
                return sorted(json.loads(value)["text"] for (value,) in database.execute("select value from records"))
        except sqlite3.OperationalError:
            return []

    def wait_until(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert self.process.poll() is None, self._path.with_suffix(".err").read_text()
            assert time.monotonic() < deadline, self._path.with_suffix(".err").read_text()
            time.sleep(0.05)

    def wait_until_written(self):
        self.wait_until(lambda: self.sent <= set(self.written()))

    def wait_until_logged(self, words, times=1):
        self.wait_until(lambda: self._path.with_suffix(".err").read_text().count(words) >= times)


@pytest.fixture
def job(tmp_path):
    with serve_in_thread(streams={"orders": 2}) as served:
        job = Job(served, tmp_path)
        try:
            yield job
        finally:
            job.process.kill()
            job.process.wait()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--parallelism", "1"), id="one"),
        pytest.param(("--parallelism", "2"), id="two", marks=pytest.mark.slow),
    ],
)
def test_streams_in_a_file_come_and_go_and_each_record_is_written_once(job, options):
    job.list("orders")
    job.start("-v", *options)
    job.send("orders")
    job.wait_until_written()

    arn = job.create("clicks")
    job.send("clicks")
    job.list("orders", arn)
    job.wait_until_written()

    job.file.unlink()
    job.wait_until_logged("The job continues with orders, clicks")
    job.send("clicks")
    job.wait_until_written()

    job.list("orders")
    job.wait_until_logged("clicks is no longer in the job's list", int(options[1]))
    unread = job.sent.copy()
    job.send("clicks")
    job.send("orders")
    job.wait_until(lambda: {each for each in job.sent - unread if each.startswith("orders")} <= set(job.written()))
    assert end(job.process) == 0

    job.start("-v", *options)
    job.list("orders", arn)
    job.wait_until_written()
    assert end(job.process) == 0
    assert job.written() == sorted(job.sent)
