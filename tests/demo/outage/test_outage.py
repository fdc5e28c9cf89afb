"""The outage replayed with real processes, one of them stopped by SIGSTOP: by Flink's old rule, and by ours."""

import subprocess
import sys

import pytest

from processes.command_line import command, process_environment

RULES = ("flink", "ours")


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Both plays side by side: they mostly wait. By rule: exit code, stdout, folder of pictures."""
    folder = tmp_path_factory.mktemp("outage")
    plays = {
        rule: subprocess.Popen(
            [sys.executable, "-m", "recordpublisher", "demo", "outage", "--rule", rule, "--pictures", str(folder)],
            env=process_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rule in RULES
    }
    return {rule: (*play.communicate(timeout=170), play.returncode, folder) for rule, play in plays.items()}


@pytest.mark.time
@pytest.mark.timeout(180)
def test_by_flinks_old_rule_the_shard_stays_unread_and_both_alarms_name_it(played):
    stdout, stderr, code, folder = played["flink"]

    assert code == 0, stdout + stderr
    assert "stays unread: 55 of 55 records" in stdout
    assert "ok    recordpublisher lag --check: exit code 3" in stdout
    assert (folder / "outage-flink-rule.png").exists()


@pytest.mark.time
@pytest.mark.timeout(180)
def test_by_ours_it_is_read_and_the_morning_after_lets_the_others_go(played):
    stdout, stderr, code, folder = played["ours"]

    assert code == 0, stdout + stderr
    assert "ok    records written: 815 of 815" in stdout
    assert "ok    recordpublisher lag --check: exit code 0" in stdout
    assert "ok    records written: 7,720 of 7,720" in stdout
    assert {path.name for path in folder.glob("*.png")} >= {"outage-our-rule.png", "outage-morning-after.png"}


def test_another_rule_is_refused_in_one_line():
    done = command("demo", "outage", "--rule", "hope")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "recordpublisher: option '--rule' has the value 'hope'; valid: ours, flink\n"


def test_a_folder_that_is_there_is_refused(tmp_path):
    done = command("demo", "outage", "--folder", str(tmp_path))

    assert done.returncode == 2
    assert "a folder that does not exist yet" in done.stderr
