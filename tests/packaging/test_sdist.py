"""The sdist: a whole checkout, whose tests run in a new environment."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from processes.command_line import ROOT

pytestmark = pytest.mark.slow
LINKS = ("publishers", "consumer", "fetcher", "plugins")
UV = Path(sys.executable).parent / "uv"
TOOLS = ("setuptools", "wheel", "attrs", "hypothesis", "pydantic", "pytest", "pytest-asyncio", "pytest-timeout")


@pytest.fixture(scope="module")
def unpacked(built, tmp_path_factory) -> Path:
    (sdist,) = built.glob("*.tar.gz")
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(sdist) as content:
        content.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    return unpacked


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout: what belongs to it is not known")
def test_every_file_of_the_repository_is_in_the_sdist(unpacked):
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = {file for file in listed.stdout.splitlines() if (ROOT / file).exists()}

    assert {file for file in files if not (unpacked / file).exists()} == {".gitignore", *LINKS}


@pytest.mark.timeout(240)
def test_the_tests_of_the_core_pass_in_a_new_environment(unpacked, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    python = tmp_path / "environment/bin/python"
    for command in (
        [UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "environment"],
        [UV, "pip", "install", "--quiet", "--python", python, "-c", "constraints.txt", ".", *TOOLS],
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/consumer"],
    ):
        done = subprocess.run(command, cwd=unpacked, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
