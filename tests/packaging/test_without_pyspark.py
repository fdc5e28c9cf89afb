"""Without Spark the suite runs, and one line says what is left out."""

import subprocess
import sys

import pytest

from processes.command_line import ROOT, command, process_environment

pytestmark = pytest.mark.slow


def collected(tmp_path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Collects the tests of Spark, where `import pyspark` fails."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark/__init__.py").write_text("raise ImportError('pyspark is hidden')\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/plugins/spark"],
        cwd=ROOT,
        env=process_environment(tmp_path, **environment),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_files_that_need_pyspark_are_skipped_with_one_line(tmp_path):
    done = collected(tmp_path, CI="")

    assert done.returncode == 0, done.stdout
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert len(skipped) == 1
    assert "pyspark is missing" in skipped[0]
    assert "test_spark_options.py::" in done.stdout, "what needs no pyspark is collected"


def test_in_ci_a_missing_pyspark_is_a_failure(tmp_path):
    done = collected(tmp_path, CI="true")

    assert done.returncode != 0
    assert "pyspark is hidden" in done.stdout


def test_the_properties_of_spark_are_listed_without_it(tmp_path):
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark/__init__.py").write_text("raise ImportError('pyspark is hidden')\n")

    done = command("properties", path=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "flink.spark.write.tasks" in done.stdout
