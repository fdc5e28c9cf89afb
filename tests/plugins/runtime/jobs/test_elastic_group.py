"""Processes that share the shards of a job: one joins, one is killed, one leaves. No record is lost."""

import itertools
import time

import pytest

from recordpublisher.local import serve_in_thread

from processes.job_files import end, job_file, start_job
from processes.process_faults import kill

SHARDS = 6
HANDLER = """
import os
def write(batch):
    os.write(1, "".join(f"{batch.shard_id} {number}\\n" for number in batch.sequence_numbers).encode())
"""
"""One call a batch: a process that is killed leaves no half of a line."""


class Group:
    """Owns the stream, and the processes by name."""

    def __init__(self, served, folder, properties):
        self._served = served
        self._folder = folder
        self._properties = properties
        self._numbers = itertools.count()
        self.sent = set()
        self.processes = {}
        (folder / "handlers.py").write_text(HANDLER)

    def join(self, name):
        folder = self._folder / name
        folder.mkdir()
        path = job_file(folder, self._properties)
        self.processes[name] = start_job(path, "--elastic", path=self._folder, stdout=folder / "written")

    def send(self):
        """Some records into each shard."""
        for _ in range(SHARDS * 3):
            number = next(self._numbers)
            sequence_number = self._served.call(self._served.endpoint.stream("orders").put, b"%d" % number, str(number))
            self.sent.add(sequence_number)

    def written(self, name=None):
        """Shard and sequence number of each record that was written, by one process or all."""
        names = self.processes if name is None else [name]
        return [
            tuple(line.split()) for each in names for line in (self._folder / each / "written").read_text().splitlines()
        ]

    def wait_until_each_writes(self, *names):
        """Each of these processes writes records that are sent from now on, and together they write all of them."""
        before = {name: len(self.written(name)) for name in names}
        self.wait_until(lambda: self.send() or all(len(self.written(name)) > before[name] for name in names))

    def wait_until_all_is_written(self):
        self.wait_until(lambda: self.sent <= {number for _, number in self.written()})

    def wait_until(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.2)


@pytest.fixture
def group(tmp_path):
    with serve_in_thread(streams={"orders": SHARDS}) as served:
        properties = {
            **served.endpoint.properties(),
            "flink.streams": "orders",
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.job.name": "orders",
            "flink.sink": "callback",
            "flink.sink.callback.function": "handlers:write",
            "flink.state.uri": f"sqlite:///{tmp_path}/group.db",
            "flink.state.checkpoint.interval": 500,
            "flink.lease.duration": 4_000,
        }
        group = Group(served, tmp_path, properties)
        try:
            yield group
        finally:
            for process in group.processes.values():
                process.kill()


@pytest.mark.kills
def test_processes_join_die_and_leave_and_no_record_is_lost(group):
    group.join("first")
    group.join("second")
    group.wait_until_each_writes("first", "second")
    kill(group.processes["first"].pid)
    group.wait_until_all_is_written()

    group.join("third")
    group.wait_until_each_writes("second", "third")
    assert end(group.processes["second"]) == 0
    group.wait_until_each_writes("third")
    group.wait_until_all_is_written()
    assert end(group.processes["third"]) == 0

    assert {number for _, number in group.written()} == group.sent
