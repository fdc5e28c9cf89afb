"""Runs pyright, which `make servers` installs, over files of `tests/type_checkers`; a test without it is skipped."""

import os
import subprocess
import sys

import pytest

from processes.command_line import ROOT

PYRIGHT = ROOT / "tests/local/foreign/node_modules/pyright/index.js"


def run_pyright(settings: str) -> subprocess.CompletedProcess[str]:
    """What it says of the files that these settings include."""
    if not PYRIGHT.exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("pyright is not installed: make servers")
    line = ["node", str(PYRIGHT), "-p", str(ROOT / "tests/type_checkers" / settings), "--pythonpath", sys.executable]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
