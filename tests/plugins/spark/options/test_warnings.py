"""Warnings about options: once a load, by one of Spark's processes, and in the progress, from where the user's own process logs them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from recordpublisher.plugins.spark.data_source import KinesisSource

from processes.command_line import ROOT

JOB = ROOT / "tests/spark_jobs/warnings_job.py"
KEY = "aws.trust.all.certificates"
WARNED = f"property '{KEY}' has no effect here: certificates are always checked"


def source_of(tmp_path):
    given = {"stream": "orders", "aws.region": "us-east-1", "metadatalocation": str(tmp_path), KEY: "true"}
    return KinesisSource(given)


def told(caplog):
    return [record.getMessage() for record in caplog.records].count(WARNED)


def test_load_says_it_and_what_is_made_of_the_source_later_does_not(tmp_path, caplog):
    source = source_of(tmp_path)
    source.schema()
    assert told(caplog) == 1
    source.query_options().warnings.tell()
    assert told(caplog) == 1


def test_the_planner_says_it_where_spark_did_not_ask_for_a_schema(tmp_path, caplog):
    options = source_of(tmp_path).query_options()
    assert told(caplog) == 0
    options.warnings.tell()
    assert told(caplog) == 1


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_each_warning_comes_once_and_reaches_the_users_process(kinesis, tmp_path):
    stream = kinesis("warned")
    stream.put(50)
    options = stream.options(tmp_path, **{KEY: "true"})
    written = {**stream.served.endpoint.properties(), "stream": stream.name, KEY: "true"}
    command = [sys.executable, str(JOB), str(tmp_path), json.dumps(options), json.dumps(written)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    parts = re.split(r"^=== (.*)$", done.stderr, flags=re.MULTILINE)
    lines = {name: text.count(f"'{KEY}'") for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    assert lines == {"load": 1, "start": 0, "start with a schema": 1, "read": 1, "write": 1, "end": 0}
    logged = json.loads(done.stdout.splitlines()[-1])
    of_options = [line for line in logged if f"'{KEY}'" in line]  # the second query also finds the claims of the first
    assert of_options == [f"query q: {WARNED}"] * 2
