"""What `doctor` says about Python, Spark and Java on this machine, on prepared faults."""

import sys
import venv

import pytest

from recordpublisher.cli.doctor.python_and_spark import version_findings


async def found():
    """The verdict and words of each check by its name."""
    return {each.name: (each.verdict.value, each.words) for each in await version_findings()}


async def test_the_python_of_sparks_workers_has_this_package(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)

    assert (await found())["Spark's Python"] == ("ok", f"{sys.executable} has pyspark_recordpublisher")


@pytest.mark.parametrize(("is_given", "expected"), [(True, "PROBLEM"), (False, "not checked")])
async def test_a_python_of_sparks_workers_without_this_package(monkeypatch, tmp_path, is_given, expected):
    venv.create(tmp_path, with_pip=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)  # by which it could
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if is_given:
        monkeypatch.setenv("PYSPARK_PYTHON", "python3")

    verdict, words = (await found())["Spark's Python"]

    assert verdict == expected
    assert f"Spark starts {tmp_path}/bin/python3 for its workers, which cannot import pyspark_recordpublisher" in words
    assert "No module named 'pyspark_recordpublisher'" in words
    assert f"Set PYSPARK_PYTHON={sys.executable}" in words


async def test_a_python_of_sparks_workers_that_is_on_executors_only(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")

    words = "PYSPARK_PYTHON is ./environment/bin/python, which is not on this machine"
    assert (await found())["Spark's Python"] == ("not checked", words)


async def test_without_pyspark_nothing_is_said_of_spark(monkeypatch):
    monkeypatch.setattr("recordpublisher.cli.doctor.python_and_spark.find_spec", lambda name: None)

    assert [each.name for each in await version_findings()] == ["Python"]


async def test_a_java_that_is_missing(monkeypatch):
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")

    verdict, words = (await found())["Spark"]

    assert verdict == "PROBLEM"
    assert "install a Java runtime of version 17 or newer" in words


async def test_the_version_of_java_is_shown(tmp_path, monkeypatch):
    pytest.importorskip("pyspark")
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin/java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    verdict, words = (await found())["Spark"]

    assert verdict == "ok"
    assert words.endswith("with Java 21")
