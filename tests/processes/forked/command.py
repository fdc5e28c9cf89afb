"""Runs the real command in a process of its own, forked from one that has made its imports: they are most of a short command's time."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Self


class ForkedCommand:
    """`recordpublisher ARGUMENTS`, or another module, as a process with methods of subprocess.Popen.

    The streams are descriptors of open files.
    """

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str],
        streams: tuple[int, int, int],
        folder: Path | None = None,
        start_new_session: bool = False,
        module: str = "recordpublisher",
    ) -> None:
        self.args = [module, *arguments]
        self.returncode: int | None = None
        self._connection, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(_server(), [b"c"], [theirs.fileno(), *streams])
        request = {
            "module": module,
            "arguments": arguments,
            "folder": str(folder or Path.cwd()),
            "environment": dict(environment),
            "new_session": start_new_session,
        }
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        self._lines = self._connection.makefile()
        self.pid = int(self._lines.readline())

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        try:
            return self.wait(timeout=0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, that of a signal negative. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._lines.readline())
            self._lines.close()
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing happens when it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class PipedCommand(ForkedCommand):
    """One whose streams are pipes of text. At the end of a `with` it has ended and the pipes are closed."""

    def __init__(self, *arguments: str, environment: Mapping[str, str], folder: Path | None = None) -> None:
        (given, ours_in), (ours_out, output), (ours_errors, errors) = os.pipe(), os.pipe(), os.pipe()
        super().__init__(*arguments, environment=environment, streams=(given, output, errors), folder=folder)
        for descriptor in (given, output, errors):
            os.close(descriptor)
        self.stdin = open(ours_in, "w")  # noqa: SIM115 - closed by __exit__
        self.stdout, self.stderr = open(ours_out), open(ours_errors)  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self.stdin, self.stdout, self.stderr:
            self.wait()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """The rest of its output and of its errors, when it has ended. Raises subprocess.TimeoutExpired."""
        self.wait(timeout)
        return self.stdout.read(), self.stderr.read()


@cache
def _server() -> socket.socket:
    """Start the process that forks. It ends with this one, as the other end of its socket is closed."""
    ours, theirs = socket.socketpair()
    with theirs:
        places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        process = subprocess.Popen(
            [sys.executable, "-m", "processes.forked.server", str(theirs.fileno())],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    atexit.register(_end, process, ours)
    return ours


def _end(process: subprocess.Popen[bytes], ours: socket.socket) -> None:
    """End the process that forks, and wait for it."""
    ours.close()
    process.wait()
