"""mypy and pyright refuse each wrong use of `wrong_uses.py`, and nothing else there."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from recordpublisher.plugins.sinks.map.key_order import Ordering, OrderingName
from recordpublisher.publishers.properties.job_properties import OnBadRecord, OnFailureName

from processes.command_line import ROOT
from processes.pyright import run_pyright

WRONG = Path(__file__).with_name("wrong_uses.py")


def wrong_uses() -> set[int]:
    """The numbers of their lines."""
    return {number for number, text in enumerate(WRONG.read_text().splitlines(), 1) if text.startswith("rp.")}


@pytest.mark.slow
def test_mypy_refuses_every_wrong_use():
    line = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(WRONG)]
    ended = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, timeout=600, check=False)

    refused = set(map(int, re.findall(r"wrong_uses\.py:(\d+): error", ended.stdout)))
    assert refused == wrong_uses(), ended.stdout
    assert len(refused) >= 30


@pytest.mark.servers  # `make servers` installs it
def test_pyright_refuses_every_wrong_use():
    ended = run_pyright("pyright_wrong_uses.json")

    refused = set(map(int, re.findall(r"wrong_uses\.py:(\d+):\d+ - error", ended.stdout)))
    assert refused == wrong_uses(), ended.stdout + ended.stderr


@pytest.mark.parametrize(("names", "of"), [(OrderingName, Ordering), (OnFailureName, OnBadRecord)])
def test_the_names_of_an_argument_are_those_of_its_declaration(names, of):
    assert get_args(names) == tuple(of.__members__)
