"""The outage replayed with real processes, one of them stopped by SIGSTOP: by Flink's old rule, and by ours."""

import os
import subprocess
import sys

import pytest

from processes.command_line import PACKAGE, ROOT, process_environment

RULES = ("flink", "ours")
PATHS = os.pathsep.join(map(str, (ROOT / "research", ROOT / "tests", PACKAGE)))


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    """Both replays side by side: they mostly wait. By rule: stdout, stderr, exit code, folder of pictures."""
    folder = tmp_path_factory.mktemp("outage")
    replays = {
        rule: subprocess.Popen(
            [sys.executable, "-m", "outage.replay", "--rule", rule, "--pictures", str(folder)],
            env=process_environment(PYTHONPATH=PATHS),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rule in RULES
    }
    return {rule: (*replay.communicate(timeout=170), replay.returncode, folder) for rule, replay in replays.items()}


@pytest.mark.time
@pytest.mark.timeout(180)
def test_by_flinks_old_rule_the_shard_stays_unread_and_both_alarms_name_it(replayed):
    stdout, stderr, code, folder = replayed["flink"]

    assert code == 0, stdout + stderr
    assert "stays unread: 55 of 55 records" in stdout
    assert "ok    recordpublisher lag --check: exit code 3" in stdout
    assert (folder / "outage-flink-rule.png").exists()


@pytest.mark.time
@pytest.mark.timeout(180)
def test_by_ours_it_is_read_and_a_shard_days_behind_does_not_stop_the_others(replayed):
    stdout, stderr, code, folder = replayed["ours"]

    assert code == 0, stdout + stderr
    assert "ok    records written: 815 of 815" in stdout
    assert "ok    recordpublisher lag --check: exit code 0" in stdout
    assert "ok    records written: 7,720 of 7,720" in stdout
    assert {path.name for path in folder.glob("*.png")} >= {"outage-our-rule.png", "outage-catch-up.png"}
