"""A process of the demo, whose JSON lines are read and which can be killed."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

QUICK_JAVA = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Options for a Spark that runs for minutes. The compiler and the garbage collector for servers would cost it a third of its CPU."""


class ChildProcess:
    """One process in a process group of its own. Owns its pipes.

    JSON lines of stdout wait for `read_messages`, and are also written to a file next to the log. stderr is written to the log.
    """

    def __init__(self, module: str, arguments: list[str], log: Path) -> None:
        self._log = log
        self._lines: queue.Queue[str] = queue.Queue()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                env={**QUICK_JAVA, **os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"},
            )
        threading.Thread(target=self._read_stdout, daemon=True).start()

    @property
    def has_failed(self) -> bool:
        """Whether it ended with an error."""
        return self.process.poll() not in (None, 0)

    @property
    def has_ended(self) -> bool:
        """Whether it ended."""
        return self.process.poll() is not None

    def log_tail(self) -> str:
        """Return the end of its stderr, without warnings."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return "\n".join(line for line in lines if " WARN " not in line)[-2_000:]

    def read_messages(self) -> Iterator[dict[str, Any]]:
        """Yield the JSON documents written to stdout since the last call."""
        while not self._lines.empty():
            with contextlib.suppress(ValueError):
                document = json.loads(self._lines.get_nowait())
                if isinstance(document, dict):
                    yield document

    def write_line(self, line: str) -> None:
        """Write a line to its stdin."""
        with contextlib.suppress(BrokenPipeError, ValueError):
            if self.process.stdin is not None:
                self.process.stdin.write(line + "\n")
                self.process.stdin.flush()

    def kill(self) -> None:
        """Kill the process and everything it started with SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_or_kill(self, seconds: float) -> None:
        """Wait until it ends by itself; kill it after `seconds`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.kill()

    def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        with self._log.with_suffix(".jsonl").open("a") as transcript:
            for line in self.process.stdout:
                self._lines.put(line)
                transcript.write(line)
