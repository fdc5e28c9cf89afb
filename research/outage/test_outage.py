"""The outage replayed with real processes: one worker of a group is stopped by SIGSTOP. Its second part also runs alone."""

import os
import subprocess
import sys

import pytest

from processes.command_line import PACKAGE, ROOT, process_environment

PATHS = os.pathsep.join(map(str, (ROOT / "research", ROOT / "tests", PACKAGE)))


pytestmark = [pytest.mark.time, pytest.mark.timeout(240)]


def replayed(*options):
    """What a replay prints, all of whose checks pass."""
    done = subprocess.run(
        [sys.executable, "-m", "outage.replay", *options],
        env=process_environment(PYTHONPATH=PATHS),
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_record_is_written_once_and_a_shard_days_behind_does_not_stop_the_others(tmp_path):
    printed = replayed("--pictures", str(tmp_path))

    assert "ok    records written: 815 of 815" in printed
    assert "ok    recordpublisher lag --check: exit code 0" in printed
    assert "ok    records written: 7,720 of 7,720" in printed
    assert {path.name for path in tmp_path.glob("*.png")} >= {"outage-our-rule.png", "outage-catch-up.png"}


def test_a_shard_days_behind_does_not_stop_the_others_of_a_process_alone():
    assert "ok    records written: 7,720 of 7,720" in replayed("--alone")
