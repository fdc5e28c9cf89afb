"""`doctor` names each fault of the table in tests/prepared_faults/table.md with its remedy: the faults are prepared, nothing is patched."""

import re

import pytest
import typer

from recordpublisher.cli.commands.doctor import doctor

from prepared_faults.faults import PREPARED, Scene
from processes.command_line import ROOT

TABLE_FILE = ROOT / "tests/prepared_faults/table.md"
TABLE = [
    re.fullmatch(r"\| (.+) \| `(.+)` \| `(.+)` \|", row).groups()
    for row in re.findall(
        r"(?m)^\| [^-].*\|$", TABLE_FILE.read_text().partition("| fault | check | words |")[2].partition("\n\n")[0]
    )
]
"""Fault, check and words."""
SLOW = ("A store in S3 that refuses connections", "A store in DynamoDB that refuses connections")
"""The AWS SDK tries again for some seconds."""


@pytest.fixture
def scene(tmp_path, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "java")))
    monkeypatch.setenv("PYSPARK_PYTHON", str(_program(tmp_path / "python", "exit 0")))
    made = Scene(tmp_path, monkeypatch)
    with made.cleanup:
        yield made


def _java(home):
    """The home of a Java that only says its version: a real one takes longer than all checks, and so does a Python that imports Spark."""
    (home / "bin").mkdir(parents=True)
    _program(home / "bin/java", "echo 'openjdk version \"17.0.1\"' >&2")
    return home


def _program(file, command):
    file.write_text(f"#!/bin/sh\n{command}\n")
    file.chmod(0o755)
    return file


def lines_of_doctor(scene, settings, capsys):
    """The verdict and the words of each check by its name, as the command prints them for a job."""
    job = {"flink.streams": "orders", "flink.sink": "jsonl", "flink.sink.jsonl.path": str(scene.folder / "rows")}
    given = {**job, **scene.served.properties(), **settings}
    file = scene.folder / "job.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items() if value is not None))
    with pytest.raises(typer.Exit):
        doctor(job=str(file))
    rows = [re.split(r" {2,}", line, maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    return {name: (verdict, words) for verdict, name, words in rows}


@pytest.mark.parametrize(
    ("fault", "check", "words"),
    [pytest.param(*row, id=row[0], marks=[pytest.mark.slow] if row[0] in SLOW else []) for row in TABLE],
)
def test_a_fault_is_named_with_its_remedy(fault, check, words, scene, capsys):
    verdict, said = lines_of_doctor(scene, PREPARED[fault](scene), capsys)[check]

    assert verdict == "PROBLEM"
    assert words in said


def test_every_prepared_fault_is_in_the_table():
    assert [fault for fault, _, _ in TABLE] == [*PREPARED]
