"""Runs the real command in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def command(*arguments: str, path: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `recordpublisher ARGUMENTS`; `path` is searched for modules first."""
    return subprocess.run(
        [sys.executable, "-m", "recordpublisher", *arguments],
        env=process_environment(path, **environment),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def process_environment(path: Path | None = None, **environment: str) -> dict[str, str]:
    """The environment in which this checkout's package is found."""
    places = [str(path)] if path else []
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*places, str(ROOT / "src")]), **environment}
