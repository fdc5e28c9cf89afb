"""A group of real processes that share the shards of one stream, and the records that are sent into it."""

from __future__ import annotations

import itertools
import os
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from recordpublisher.local import LocalKinesisThread, serve_in_thread
from recordpublisher.local import stream as resharding
from recordpublisher.local.shard import Shard
from recordpublisher.local.stream import Stream

from processes.job_files import job_file, start_job

TIMEOUT_SECONDS = 60
HANDLER = """
import os, time
def write(batch):
    now = time.time()
    os.write(1, "".join(f"{now} {batch.shard_id} {number}\\n" for number in batch.sequence_numbers).encode())
"""
"""One call a batch: a process that is killed leaves no half of a line."""


SHARDS = 4
"""Of the stream that the groups of most tests read."""
TIMES = {"flink.state.checkpoint.interval": 500, "flink.lease.duration": 4_000}
"""Shorter than the defaults, so that tests need not wait."""


class Written(NamedTuple):
    """One record that a process wrote, and when (seconds since the epoch)."""

    seconds: float
    shard: str
    sequence_number: str


class WorkerGroup:
    """Owns the processes by name, and which records were sent. Each process writes what it reads into a file of its own."""

    def __init__(self, served: LocalKinesisThread, folder: Path, properties: Mapping[str, object]) -> None:
        self.served = served
        self._folder = folder
        self.properties = properties
        self.payload: Callable[[int], bytes] = lambda number: b"%d" % number
        self._numbers = itertools.count()
        self.sent: set[str] = set()
        self.processes: dict[str, subprocess.Popen] = {}
        (folder / "handlers.py").write_text(HANDLER)

    def join(self, name: str, *options: str) -> None:
        """Start a process of the group."""
        self.start(name, "--group", *options)

    def start(self, name: str, *options: str) -> None:
        """Start a process. Without `--group` it runs alone."""
        folder = self._folder / name
        folder.mkdir()
        path = job_file(folder, dict(self.properties))
        self.processes[name] = start_job(path, "-v", *options, path=self._folder, stdout=folder / "written")

    def send(self, count: int) -> None:
        """Send some records, spread over the shards."""
        for _ in range(count):
            number = next(self._numbers)
            self.sent.add(self.served.call(self._stream.put, self.payload(number), str(number)))

    def written(self, *names: str) -> list[Written]:
        """What these processes wrote; without names, all of them."""
        lines = [
            line.split()
            for name in names or self.processes
            for line in (self._folder / name / "written").read_text().splitlines()
        ]
        return [Written(float(seconds), shard, number) for seconds, shard, number in lines]

    def log(self, name: str) -> str:
        """What a process has logged."""
        return (self._folder / name / "job.err").read_text()

    def worker(self, name: str) -> str:
        """The name that the present worker of a process has in its group."""
        return re.findall(r"worker (\w+) joins its group", self.log(name))[-1]

    def job(self, name: str) -> Path:
        """The properties file of a process."""
        return self._folder / name / "job.properties"

    def suspend(self, name: str) -> None:
        """Stop a process, but not within a transaction of SQLite, whose lock would keep the others from writing until it goes on."""
        pid = self.processes[name].pid
        os.kill(pid, signal.SIGSTOP)
        while any(map(_is_locked, files_of_job(self._folder, ".db"))):
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.05)
            os.kill(pid, signal.SIGSTOP)

    def is_sealed(self, name: str) -> bool:
        """Whether another process has sealed the present worker of this one."""
        return any(f"worker {self.worker(name)} sent no heartbeat" in self.log(each) for each in self.processes)

    def split(self) -> None:
        """Split the open shard with the lowest hash keys."""
        shard = self.open_shards()[0]
        middle = (shard.hash_range.start + shard.hash_range.end) // 2
        self.served.call(resharding.split, self._stream, shard, middle)

    def merge(self) -> None:
        """Merge the two open shards with the highest hash keys."""
        self.served.call(resharding.merge, self._stream, *self.open_shards()[-2:])

    def open_shards(self) -> list[Shard]:
        """By their hash keys."""
        return sorted(self._stream.open_shards, key=lambda shard: shard.hash_range.start)

    def wait_until_each_writes(self, *names: str) -> None:
        """Each of these processes writes records; some are sent until it does."""
        before = {name: len(self.written(name)) for name in names}
        self.wait_until(lambda: self.send(20) or all(len(self.written(name)) > before[name] for name in names))

    def wait_until_all_is_written(self) -> None:
        """All records that were sent before now."""
        sent = set(self.sent)
        self.wait_until(lambda: sent <= {each.sequence_number for each in self.written()})

    def wait_until(self, condition: Callable[[], object], seconds: float = TIMEOUT_SECONDS) -> None:
        """Wait for a minute at most."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, {name: self.log(name)[-2000:] for name in self.processes}
            time.sleep(0.2)

    @property
    def _stream(self) -> Stream:
        return self.served.endpoint.stream("orders")


@contextmanager
def worker_group(
    folder: Path, shards: int, properties: Mapping[str, object], *, http2: bool = False
) -> Iterator[WorkerGroup]:
    """A group without processes; those that are still there at the end are killed. `properties` are beside those of the stream and sink.

    `http2`: the stream's endpoint also serves AWS's SDK for Java.
    """
    with serve_in_thread(streams={"orders": shards}, http2=http2) as served:
        given = {
            **served.endpoint.properties(),
            "flink.streams": "orders",
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.job.name": "orders",
            "flink.sink": "callback",
            "flink.sink.callback.function": "handlers:write",
            **properties,
        }
        group = WorkerGroup(served, folder, given)
        try:
            yield group
        finally:
            for process in group.processes.values():
                process.kill()
                process.wait()


def files_of_job(folder: Path, suffix: str) -> list[Path]:
    """The files in a folder into which jobs write now, but for their own in `.recordpublisher`.

    `rglob` raises an error if a job removes one of its folders meanwhile.
    """
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".recordpublisher"]
        found += [Path(place, name) for name in names if name.endswith(suffix)]
    return found


def _is_locked(database: Path) -> bool:
    """Whether a process keeps others from writing for a second."""
    with closing(sqlite3.connect(database, timeout=1, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        connection.execute("ROLLBACK")
    return False
