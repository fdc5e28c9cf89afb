"""Starts the processes of a slow copy and reads their output."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")]),
}


@contextmanager
def server(records: int) -> Iterator[str]:
    """The URL of an endpoint with so many records; it ends with the block, or with us."""
    command = [sys.executable, str(HERE / "server.py"), str(records)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


@contextmanager
def machine_stalls() -> Iterator[list[tuple[float, float]]]:
    """When the machine stalled during the block, and for how long (seconds); filled when the block has ended."""
    found: list[tuple[float, float]] = []
    command = [sys.executable, str(HERE / "stalls.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield found
        finally:
            process.terminate()
            found += [tuple(json.loads(line)) for line in process.stdout if line.endswith("\n")]


def copy(url: str, publisher: str, seconds: float, limit: int = 0) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Run the job; returns its samples and its final line."""
    command = [sys.executable, str(HERE / "job.py"), url, publisher, str(seconds), str(limit)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, check=True, timeout=600)
    *samples, end = [json.loads(line) for line in done.stdout.splitlines()]
    return samples, end
