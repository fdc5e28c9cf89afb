"""The whole demo, with its Spark job killed by kill -9 halfway."""

import subprocess
import sys

import pytest

from processes.command_line import command


@pytest.mark.kills
@pytest.mark.spark
@pytest.mark.timeout(700)
@pytest.mark.parametrize("publisher", ["EFO", "POLLING"])
def test_a_job_killed_in_mid_run_and_started_again_loses_and_repeats_nothing(publisher):
    arguments = ["--publisher", publisher, "--seconds", "60", "--kill"]
    done = subprocess.run(
        [sys.executable, "-m", "recordpublisher", "demo", *arguments],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed with kill -9 and is started again" in done.stderr
    assert "ok    duplicates: 0 flights, 0 sequence numbers" in done.stdout
    assert "ok    missing: 0" in done.stdout


def test_without_java_one_sentence_says_what_to_install(tmp_path):
    done = command("demo", PATH=str(tmp_path), JAVA_HOME="")

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "install a Java runtime of version 17 or newer" in done.stderr


def test_another_publisher_is_refused_in_one_line():
    done = command("demo", "--publisher", "PIGEON")

    assert done.returncode == 2
    assert done.stderr.splitlines() == ["recordpublisher: option '--publisher' is 'PIGEON'. Valid: EFO, POLLING"]
