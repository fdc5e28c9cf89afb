"""Runs a job in several processes, which share its shards as a group. They drain together, and all of them end when one fails."""

import asyncio
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import msgspec

from recordpublisher.fetcher.committing_sink import stores_positions
from recordpublisher.fetcher.monitoring.progress import SubtaskProgress
from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.plugins.host.source_kind import reads_a_queue
from recordpublisher.publishers.properties.groups.job import DRAIN_TIMEOUT, JOB_WORKERS, SINK, STATE_URI
from recordpublisher.publishers.properties.properties import Properties

from .termination import CLOSING_SECONDS, WorkerFailedError, stop_on_signals

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
