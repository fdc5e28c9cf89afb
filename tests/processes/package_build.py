"""Builds the package as `python -m build` does, without an environment of its own."""

import subprocess
import sys
from pathlib import Path


def build(checkout: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "build", "--no-isolation", *options, str(checkout)]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
