"""A process is killed inside publish, before and after the table's own commit: the next one publishes, and each row is there once."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recordpublisher.fetcher.sink import Staged

from .lake_tables import Delta, Iceberg, marks, number, opened, payloads
from processes.command_line import ROOT, process_environment

pytestmark = pytest.mark.kills


def killed(kind, folder, when):
    """What the process had staged."""
    script = Path(__file__).with_name("killed_publisher.py")
    environment = process_environment(ROOT / "tests")
    command = [sys.executable, str(script), kind.__name__, str(folder), when]
    died = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr
    return Staged(number(1), json.loads(died.stdout))


@pytest.mark.parametrize("kind", [Delta, Iceberg])
@pytest.mark.parametrize("when", ["BEFORE", "AFTER"])
async def test_the_next_start_ends_what_was_begun(tmp_path, kind, when):
    staged = killed(kind, tmp_path, when)
    left = kind(tmp_path)
    assert (marks(left), payloads(left)) == (["1"], [b"a", b"b"] if when == "AFTER" else [])

    sink = await opened(left, "job.0.2")
    await sink.publish([staged])
    await sink.discard(lambda life: life == "job.0.1", [staged])

    assert (marks(left), payloads(left)) == ([], [b"a", b"b"])
    await sink.close()
