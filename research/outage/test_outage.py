"""The outage replayed with real processes: one worker of a group is stopped by SIGSTOP."""

import os
import subprocess
import sys

import pytest

from processes.command_line import PACKAGE, ROOT, process_environment

PATHS = os.pathsep.join(map(str, (ROOT / "research", ROOT / "tests", PACKAGE)))


@pytest.mark.time
@pytest.mark.timeout(240)
def test_every_record_is_written_once_and_a_shard_days_behind_does_not_stop_the_others(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "outage.replay", "--pictures", str(tmp_path)],
        env=process_environment(PYTHONPATH=PATHS),
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok    records written: 815 of 815" in done.stdout
    assert "ok    recordpublisher lag --check: exit code 0" in done.stdout
    assert "ok    records written: 7,720 of 7,720" in done.stdout
    assert {path.name for path in tmp_path.glob("*.png")} >= {"outage-our-rule.png", "outage-catch-up.png"}
