"""Starts the embedded endpoint and the workers of a job, each as a process of its own, and reads their reports."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from recordpublisher.demo.runner import ChildProcess
from recordpublisher.publishers.errors import RecordPublisherError

from .results.event_log import EventLog

START_SECONDS = 40.0
"""How long processes may take to start on a loaded machine."""


class ReplayFailedError(RecordPublisherError):
    """The replay could not be run to its end."""


class PausableProcess(ChildProcess):
    """A process that can also be paused, and stopped by SIGTERM."""

    def pause(self) -> None:
        """Send SIGSTOP: it does not run until `resume`."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT: it runs again."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.process.terminate()


class ReplayProcesses:
    """Owns the processes. Everything listens on this machine only."""

    def __init__(self, folder: Path, streams: dict[str, int]) -> None:
        self._folder = folder
        self._streams = streams
        self._stack = ExitStack()
        self.workers: list[PausableProcess] = []
        self.log = EventLog()

    def __enter__(self) -> Self:
        try:
            port = free_port()
            named = [part for name, count in self._streams.items() for part in ("--stream", f"{name}:{count}")]
            self._start_server("recordpublisher", ["local", "--port", str(port), *named], "endpoint", port)
            self.url = f"http://127.0.0.1:{port}"
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def connection(self) -> dict[str, str]:
        """The properties that reach the endpoint."""
        return {
            "aws.endpoint": self.url,
            "aws.region": "us-east-1",
            "aws.credentials.provider.basic.accesskeyid": "demo",
            "aws.credentials.provider.basic.secretkey": "demo",
        }

    def start_workers(self, stream: str, count: int, shards: int, properties: dict[str, Any]) -> None:
        """Start every worker, and wait until each has reported its share of the shards. A single one runs alone."""
        given = json.dumps(
            {
                **self.connection,
                **properties,
                "flink.job.workers": "GROUP" if count > 1 else "ALONE",
                "flink.state.uri": str(self._folder / "state"),
            }
        )
        self.workers = [
            self._start(
                "outage.worker",
                [
                    *("--stream", stream, "--number", str(number), "--properties", given),
                ],
                f"worker-{number}",
            )
            for number in range(count)
        ]
        deadline = time.monotonic() + START_SECONDS
        while [len(each["metrics"]["shards"]) for each in self.log.latest.values()] != [shards // count] * count:
            self.read_messages()
            if time.monotonic() > deadline:
                raise ReplayFailedError(f"the shards are not shared: {sorted(self.log.latest)} have started")
            time.sleep(0.05)

    def stop_workers(self) -> None:
        """Stop them with SIGTERM: each takes its last checkpoint."""
        for process in self.workers:
            process.terminate()
        for process in self.workers:
            process.wait_or_kill(20)
        self.read_messages()

    def read_messages(self) -> None:
        """Add what the workers have written to the log. Raises: ReplayFailedError when one has failed."""
        for process in self.workers:
            for message in process.read_messages():
                self.log.add_message(message)
            if process.has_failed:
                raise ReplayFailedError(f"a worker ended early:\n{process.log_tail()}")

    def _start_server(self, module: str, arguments: list[str], name: str, port: int) -> None:
        process = self._start(module, arguments, name)
        if not wait_for_port(port, process, START_SECONDS):
            raise ReplayFailedError(f"the {name} did not start:\n{process.log_tail()}")

    def _start(self, module: str, arguments: list[str], name: str) -> PausableProcess:
        process = PausableProcess(module, arguments, self._folder / f"{name}.log")
        self._stack.callback(process.kill)
        return process


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, process: ChildProcess, seconds: float = 20.0) -> bool:
    """Wait until the port accepts connections. False when the time is up or the process has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not process.has_ended:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        time.sleep(0.05)
    return False
