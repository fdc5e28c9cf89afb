"""The page about compatibility names the versions of Spark that CI runs."""

from __future__ import annotations

import re

from processes.command_line import ROOT


def test_the_versions_of_spark_are_those_that_ci_runs():
    older = re.findall(r"^SPARKS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    newest = re.findall(r"^pyspark==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    page = (ROOT / "docs/reference/compatibility.md").read_text()
    rows = re.findall(r"^\| ([0-9., ]+) \|", page, re.MULTILINE)
    steps = (ROOT / ".ci/run").read_text()

    assert rows == [older[0].replace(" ", ", "), *newest]
    assert "spark-versions" in steps
    assert "make kills" in steps
