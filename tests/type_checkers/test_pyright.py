"""pyright infers of typed records what mypy does; mypy checks the same file in `make check`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PYRIGHT = HERE.parent / "local" / "foreign" / "node_modules" / "pyright" / "index.js"


@pytest.mark.servers  # `make servers` installs it
def test_pyright_infers_the_types_of_values_without_a_cast():
    if not PYRIGHT.exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("pyright is not installed: make servers")
    command = ["node", str(PYRIGHT), "-p", str(HERE), "--pythonpath", sys.executable]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert ended.returncode == 0, ended.stdout
    assert "0 errors" in ended.stdout
