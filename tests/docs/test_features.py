"""Pages that list what there is: the commands, and the versions of Spark that CI runs."""

import re

from processes.command_line import ROOT, command

FEATURES = ROOT / "docs/reference/features.md"
COMPATIBILITY = ROOT / "docs/reference/compatibility.md"


def test_the_commands_of_the_table_are_those_there_are():
    listed = command("--help").stdout.split("Commands:")[1]
    row = next(line for line in FEATURES.read_text().splitlines() if line.startswith("| Command line |"))

    assert row.split("|")[2].split("`")[1::2] == sorted(line.split()[0] for line in listed.strip().splitlines())


def test_the_versions_of_spark_are_those_that_ci_runs():
    older = re.findall(r"^SPARKS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    newest = re.findall(r"^pyspark==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    rows = re.findall(r"^\| ([0-9., ]+) \|", COMPATIBILITY.read_text(), re.MULTILINE)
    steps = (ROOT / ".ci/run").read_text()

    assert ", ".join(rows) == ", ".join([*older[0].split(), *newest])
    assert "make spark-alone" in steps
    assert {"spark-versions", "spark-kills"} <= set(re.findall(r"\S+", steps))
