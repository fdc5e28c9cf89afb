"""Supervisor: the subtasks of a job as processes, one life: all of them drain together, and none outlives a failure."""

from __future__ import annotations

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

from recordpublisher.plugins.trackers.tcp.server import TrackerServer
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import DRAIN_TIMEOUT, TRACKER, TRACKER_ADDRESS, TRACKER_TOKEN

from .progress import SubtaskProgress
from .termination import SubtaskFailedError, stop_on_signals

log = logging.getLogger("recordpublisher.run")


class Supervisor:
    """Owns the subtasks' processes and the pipes to them.

    A subtask is told its properties on its stdin, which stays open: its end, also by the death of the supervisor, means drain. So no
    secret stands on a command line, and no subtask is left behind. Each is in a session of its own: Ctrl-C reaches the supervisor only.
    """

    def __init__(
        self,
        command: Sequence[str],
        properties: Properties,
        parallelism: int,
        report: Callable[[SubtaskProgress], None],
    ) -> None:
        """`command` starts a subtask when `--subtask N` is added to it."""
        self._command = command
        self._properties = properties
        self._parallelism = parallelism
        self._report = report
        self._drain_seconds = properties.value(DRAIN_TIMEOUT)
        self._processes: dict[int, Process] = {}
        self._is_draining = False

    async def run(self) -> None:
        """Until every subtask has ended. Raises: SubtaskFailedError for the first that did not end well, when all have ended."""
        stop_on_signals(self._drain, self._kill)
        try:
            for subtask in range(self._parallelism):
                if not self._is_draining:
                    await self._start(subtask)
            await self._until_ended()
        finally:
            self._kill()

    async def _start(self, subtask: int) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._command, "--subtask", str(subtask), stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        self._processes[subtask] = process
        if process.stdin is not None:
            process.stdin.write(json.dumps(dict(self._properties)).encode() + b"\n")
        if self._is_draining:
            self._drain()

    async def _until_ended(self) -> None:
        watching = {asyncio.create_task(self._watch(subtask)) for subtask in self._processes}
        failed: SubtaskFailedError | None = None
        timeout = None
        while watching:
            done, watching = await asyncio.wait(watching, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                log.error("subtasks did not drain within %d s and are ended", self._drain_seconds)
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
        process = self._processes[subtask]
        if process.stdout is not None:
            async for line in process.stdout:
                self._report(msgspec.json.decode(line, type=SubtaskProgress))
        code = await process.wait()
        return SubtaskFailedError(subtask, code) if code else None

    def _drain(self) -> None:
        log.info("the job drains")
        self._is_draining = True
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()

    def _kill(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()


def read_from_supervisor() -> tuple[Properties, int]:
    """In a subtask: its properties, and the pipe whose end means drain."""
    line = sys.stdin.readline()
    return Properties(json.loads(line)), sys.stdin.fileno()


def report_to_supervisor(progress: SubtaskProgress) -> None:
    """In a subtask: one line; a supervisor that is gone does not matter, its pipe's end says so."""
    try:
        os.write(sys.stdout.fileno(), msgspec.json.encode(progress) + b"\n")
    except BrokenPipeError:
        log.debug("the supervisor is gone")


@asynccontextmanager
async def tracked(properties: Properties) -> AsyncIterator[Properties]:
    """The properties with which subtasks in other processes find each other; a tracker listens on loopback meanwhile (C4).

    IN_PROCESS cannot reach other processes; any other tracker that the properties name is left as it is.
    """
    if (properties.value(TRACKER) or "").upper() != "IN_PROCESS":
        yield properties
        return
    token = secrets.token_hex(16)
    async with TrackerServer(token) as server:
        yield properties.merged({TRACKER.key: "TCP", TRACKER_ADDRESS.key: server.address, TRACKER_TOKEN.key: token})
