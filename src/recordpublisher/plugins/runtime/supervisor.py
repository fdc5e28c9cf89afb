"""Runs a job in several processes, which share its shards as a group. They drain together, and all of them end when one fails."""

import asyncio
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import msgspec

from recordpublisher.fetcher.committing_sink import stores_positions
from recordpublisher.fetcher.monitoring.progress import SubtaskProgress
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.properties.groups.job import DRAIN_TIMEOUT, JOB_WORKERS, SINK, STATE_URI
from recordpublisher.publishers.properties.properties import Properties

from ..host.manager import load_registry
from ..host.source_kind import reads_a_queue
from ..lag.job_snapshot import Rates
from .stop_signals import CLOSING_SECONDS, WorkerFailedError, stop_on_signals

log = logging.getLogger("recordpublisher.run")
LAST_REPORT_SECONDS = 1.0
"""How long to wait for the last report of a worker that has ended. A process that it left behind may keep the pipe open."""


class Supervisor:
    """Owns the processes of the workers and the pipes to them.

    - A worker reports its progress through a pipe of its own, because user code may print to the stdout that it shares with the
      supervisor.
    - A worker reads its properties from its stdin, so no secret is on a command line. The pipe stays open, and its end of file means
      drain. This works even if the supervisor dies, so no worker keeps running.
    - Each worker has a session of its own, so Ctrl-C reaches only the supervisor.

    The argument `command` starts a worker when `--number N --supervised DESCRIPTOR` is added.
    """

    def __init__(
        self,
        command: Sequence[str],
        properties: Properties,
        count: int,
        report: Callable[[SubtaskProgress], None],
    ) -> None:
        self._command = command
        self._properties = properties
        self._count = count
        self._report = report
        self._drain_seconds = properties.value(DRAIN_TIMEOUT) / 1000 + CLOSING_SECONDS
        self._processes: dict[int, Process] = {}
        self._progress: dict[int, asyncio.StreamReader] = {}
        self._is_draining = False

    async def run(self) -> None:
        """Run until every worker has ended. Raises: WorkerFailedError for the first worker that failed, after all have ended."""
        stop_on_signals(self._drain, self._kill)
        try:
            for number in range(self._count):
                if not self._is_draining:
                    await self._start(number)
            await self._wait_for_all()
        finally:
            self._kill()

    async def _start(self, number: int) -> None:
        ours, theirs = os.pipe()
        self._progress[number] = await _reader_of(ours)
        arguments = ("--number", str(number), "--supervised", str(theirs))
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, *arguments, stdin=PIPE, pass_fds=(theirs,), start_new_session=True
            )
        finally:
            # Closed here, because otherwise the pipe would not end when the worker ends.
            os.close(theirs)
        self._processes[number] = process
        if process.stdin is not None:
            process.stdin.write(json.dumps(dict(self._properties)).encode() + b"\n")
        if self._is_draining:
            self._drain()

    async def _wait_for_all(self) -> None:
        watching = {asyncio.create_task(self._watch(number)) for number in self._processes}
        failed: WorkerFailedError | None = None
        timeout = None
        while watching:
            done, watching = await asyncio.wait(watching, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                log.error("workers did not drain within %.0f s and are killed", self._drain_seconds)
                self._kill()
            for task in done:
                failed = failed or task.result()
            if failed and timeout is None:
                log.error("%s", failed)
                self._drain()
                timeout = self._drain_seconds
        if failed:
            raise failed

    async def _watch(self, number: int) -> WorkerFailedError | None:
        reading = asyncio.create_task(self._read_progress(number, self._progress[number]))
        try:
            code = await self._processes[number].wait()
            await asyncio.wait([reading], timeout=LAST_REPORT_SECONDS)
        finally:
            reading.cancel()
        return WorkerFailedError(number, code) if code else None

    async def _read_progress(self, number: int, reader: asyncio.StreamReader) -> None:
        """Pass on each report. Ignore lines that are not valid reports."""
        while True:
            try:
                line = await reader.readline()
                if not line:
                    return
                progress = msgspec.json.decode(line, type=SubtaskProgress)
                self._report(msgspec.structs.replace(progress, subtask=number))
            except ValueError as error:  # The line may also be too long.
                log.debug("a worker sent an invalid report: %s", error)

    def _drain(self) -> None:
        log.info("the job is draining")
        self._is_draining = True
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()

    def _kill(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()


def read_from_supervisor() -> tuple[Properties, int]:
    """Return the properties of this worker, and the descriptor of the pipe whose end of file means drain. Called in a worker."""
    line = sys.stdin.readline()
    return Properties(json.loads(line)), sys.stdin.fileno()


def reporter_to_supervisor(descriptor: int) -> Callable[[SubtaskProgress], None]:
    """Return a function that writes one line for each report. Called in a worker.

    It ignores a supervisor that is gone or does not read, because the end of the other pipe drains the worker.
    """
    os.set_inheritable(descriptor, False)
    os.set_blocking(descriptor, False)

    def report(progress: SubtaskProgress) -> None:
        try:
            os.write(descriptor, msgspec.json.encode(progress) + b"\n")
        except (BrokenPipeError, BlockingIOError):
            log.debug("the supervisor does not read")

    return report


async def _reader_of(descriptor: int) -> asyncio.StreamReader:
    """Return a reader of a pipe, which is closed at its end."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0))
    return reader


@contextmanager
def as_group(properties: Properties) -> Iterator[Properties]:
    """Yield the properties with which processes share the shards as a group.

    A job that stores no positions gets a temporary folder for the leases, which is deleted at the end. Processes that receive from a queue
    share it without a group.

    Raises: ConfigurationError if the sink is not registered.
    """
    if reads_a_queue(properties):
        yield properties
        return
    group = properties.merged({JOB_WORKERS.key: "GROUP"})
    name = properties.value(SINK)
    sink = None if name is None else load_registry().sinks.get(name, SINK.key)
    if properties.value(STATE_URI) is not None or (sink is not None and stores_positions(sink)):
        yield group
        return
    with TemporaryDirectory(prefix="recordpublisher-") as folder:
        yield group.merged({STATE_URI.key: folder})


# Adds the reports of all subtasks to the progress of the job.


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of all subtasks together.

    - `per_second`: recently finished records per second, including records that were left out; None if no time has passed.
    - `lag_ms`: age of the oldest unfinished record, in the shard that is furthest behind (ms); None if not known.
    - `unfinished`: number of records that were read and that the sink has not finished; None if not known.
    - `left`: number of records that the sink has dropped, and that the next start reads again.
    - `unread_ms`: how long a shard that should be read was not read (ms); None if every shard is read.
    - `read_failure`: why that shard is not read, if known.
    """

    records: int
    per_second: float | None
    open_shards: int
    idle_shards: int
    held_shards: int
    skipped: int
    dead_letters: int
    lag_ms: int | None
    unfinished: int | None
    unread_ms: int | None = None
    read_failure: str | None = None
    left: int = 0

    def __str__(self) -> str:
        per_second = "-" if self.per_second is None else f"{self.per_second:,.0f}"
        parts = [f"{counted(self.records, 'record')} read"]
        parts += [] if self.unfinished is None else [f"{self.unfinished:,} not finished"]
        parts += [f"{self.left:,} left for the next start"] if self.left else []
        parts += [f"{per_second}/s", f"{counted(self.open_shards, 'shard')} open"]
        counts = {"idle": self.idle_shards, "held": self.held_shards, "skipped": self.skipped}
        parts += [f"{count} {name}" for name, count in counts.items() if count]
        parts += [counted(self.dead_letters, "dead letter")] if self.dead_letters else []
        parts += [] if self.lag_ms is None else [f"{self.lag_ms / 1000:.1f} s behind"]
        if self.unread_ms is not None:
            failure = "" if self.read_failure is None else f": {self.read_failure}"
            parts.append(f"last read {self.unread_ms / 1000:.0f} s ago{failure}")
        return ", ".join(parts)


class JobProgressMeter:
    """Owns the last report of each subtask.

    - `began`: when the job began (seconds of a monotonic clock).
    """

    def __init__(self, began: float) -> None:
        self._last: dict[int, SubtaskProgress] = {}
        self._rates = Rates()
        self._rates.add(began, {"job": (0, 0)})

    @property
    def has_reports(self) -> bool:
        """Whether any subtask has reported yet."""
        return bool(self._last)

    def update(self, progress: SubtaskProgress) -> None:
        """Keep a subtask's newest report."""
        self._last[progress.subtask] = progress

    def sample(self, now: float) -> JobProgress:
        """Return the job's progress now, with the rate of the last seconds. `now` is in seconds of a monotonic clock."""
        each = list(self._last.values())
        records = sum(one.records for one in each)
        self._rates.add(now, {"job": (sum(_finished(one) for one in each), 0)})
        unread = max(
            (one for one in each if one.unread_ms is not None), key=lambda one: one.unread_ms or 0, default=None
        )
        per_second, _ = self._rates.per_second("job") or (None, None)
        return JobProgress(
            records,
            per_second,
            sum(one.open_shards for one in each),
            sum(one.idle_shards for one in each),
            sum(one.held_shards for one in each),
            sum(one.skipped for one in each),
            sum(one.dead_letters for one in each),
            max((one.lag_ms for one in each if one.lag_ms is not None), default=None),
            sum(told) if (told := [one.unfinished for one in each if one.unfinished is not None]) else None,
            None if unread is None else unread.unread_ms,
            None if unread is None else unread.read_failure,
            sum(one.left for one in each),
        )


def _finished(progress: SubtaskProgress) -> int:
    """Return how many records the sink has finished. A write that has not returned may count as unfinished before it counts as read."""
    return max(0, progress.records - (progress.unfinished or 0) - progress.left)
