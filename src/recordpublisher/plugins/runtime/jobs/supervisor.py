"""Runs the subtasks of a job as processes. They drain together, and all of them end when one fails."""

import asyncio
import json
import logging
import os
import secrets
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from recordpublisher.fetcher.monitoring.progress import SubtaskProgress
from recordpublisher.plugins.trackers.tcp.server import TrackerServer
from recordpublisher.publishers.properties.groups.job import (
    DRAIN_TIMEOUT,
    TRACKER,
    TRACKER_ADDRESS,
    TRACKER_TLS_CA,
    TRACKER_TLS_CERTIFICATE,
    TRACKER_TLS_KEY,
    TRACKER_TOKEN,
)
from recordpublisher.publishers.properties.properties import Properties

from .termination import CLOSING_SECONDS, SubtaskFailedError, stop_on_signals

log = logging.getLogger("recordpublisher.run")
LAST_REPORT_SECONDS = 1.0
"""How long to wait for the last report of a subtask that has ended. A process that it left behind may keep the pipe open."""


class Supervisor:
    """Owns the subtasks' processes and the pipes to them.

    - A subtask reports its progress through a pipe of its own, because user code may print to the stdout that it shares with the
      supervisor.
    - A subtask reads its properties from its stdin, so no secret is on a command line. The pipe stays open, and its end of file means
      drain. This works even if the supervisor dies, so no subtask keeps running.
    - Each subtask has a session of its own, so Ctrl-C reaches only the supervisor.

    The argument `command` starts a subtask when `--subtask N --supervised DESCRIPTOR` is added.
    """

    def __init__(
        self,
        command: Sequence[str],
        properties: Properties,
        parallelism: int,
        report: Callable[[SubtaskProgress], None],
    ) -> None:
        self._command = command
        self._properties = properties
        self._parallelism = parallelism
        self._report = report
        self._drain_seconds = properties.value(DRAIN_TIMEOUT) / 1000 + CLOSING_SECONDS
        self._processes: dict[int, Process] = {}
        self._progress: dict[int, asyncio.StreamReader] = {}
        self._is_draining = False

    async def run(self) -> None:
        """Run until every subtask has ended. Raises: SubtaskFailedError for the first subtask that failed, after all have ended."""
        stop_on_signals(self._drain, self._kill)
        try:
            for subtask in range(self._parallelism):
                if not self._is_draining:
                    await self._start(subtask)
            await self._wait_for_all()
        finally:
            self._kill()

    async def _start(self, subtask: int) -> None:
        ours, theirs = os.pipe()
        self._progress[subtask] = await _reader_of(ours)
        arguments = ("--subtask", str(subtask), "--supervised", str(theirs))
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, *arguments, stdin=PIPE, pass_fds=(theirs,), start_new_session=True
            )
        finally:
            # Closed here, because otherwise the pipe would not end when the subtask ends.
            os.close(theirs)
        self._processes[subtask] = process
        if process.stdin is not None:
            process.stdin.write(json.dumps(dict(self._properties)).encode() + b"\n")
        if self._is_draining:
            self._drain()

    async def _wait_for_all(self) -> None:
        watching = {asyncio.create_task(self._watch(subtask)) for subtask in self._processes}
        failed: SubtaskFailedError | None = None
        timeout = None
        while watching:
            done, watching = await asyncio.wait(watching, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                log.error("subtasks did not drain within %.0f s and are killed", self._drain_seconds)
                self._kill()
            for task in done:
                failed = failed or task.result()
            if failed and timeout is None:
                log.error("%s", failed)
                self._drain()
                timeout = self._drain_seconds
        if failed:
            raise failed

    async def _watch(self, subtask: int) -> SubtaskFailedError | None:
        reading = asyncio.create_task(self._read_progress(self._progress[subtask]))
        try:
            code = await self._processes[subtask].wait()
            await asyncio.wait([reading], timeout=LAST_REPORT_SECONDS)
        finally:
            reading.cancel()
        return SubtaskFailedError(subtask, code) if code else None

    async def _read_progress(self, reader: asyncio.StreamReader) -> None:
        """Pass on each report. Ignore lines that are not valid reports."""
        while True:
            try:
                line = await reader.readline()
                if not line:
                    return
                self._report(msgspec.json.decode(line, type=SubtaskProgress))
            except ValueError as error:  # The line may also be too long.
                log.debug("a subtask sent an invalid report: %s", error)

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
    """Return the properties of this subtask, and the descriptor of the pipe whose end of file means drain. Called in a subtask."""
    line = sys.stdin.readline()
    return Properties(json.loads(line)), sys.stdin.fileno()


def reporter_to_supervisor(descriptor: int) -> Callable[[SubtaskProgress], None]:
    """Return a function that writes one line for each report. Called in a subtask.

    It ignores a supervisor that is gone or does not read, because the end of the other pipe drains the subtask.
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


@asynccontextmanager
async def with_local_tracker(properties: Properties) -> AsyncIterator[Properties]:
    """Run a tracker on loopback for the subtask processes. Yield the properties with its address and token (C4).

    This is only for IN_PROCESS, which cannot reach other processes. Properties that name another tracker are yielded unchanged.
    """
    if properties.value(TRACKER) != "IN_PROCESS":
        yield properties
        return
    token = secrets.token_hex(16)
    async with TrackerServer(token) as server:
        without_tls = dict.fromkeys((TRACKER_TLS_CA.key, TRACKER_TLS_CERTIFICATE.key, TRACKER_TLS_KEY.key))
        address = {TRACKER.key: "TCP", TRACKER_ADDRESS.key: server.address, TRACKER_TOKEN.key: token}
        yield properties.merged({**without_tls, **address})
