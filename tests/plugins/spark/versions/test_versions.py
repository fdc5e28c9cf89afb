"""Older versions of PySpark, as EMR 8, Glue 6 and Databricks 19 have them: reads, writing, and queries, also after a kill and reshards."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from processes.command_line import ROOT
from spark_jobs.killable_job import ACTIONS
from spark_jobs.kills import Job, producing, python_of
from spark_jobs.queries import WAIT_SECONDS

pytestmark = [pytest.mark.versions, pytest.mark.timeout(3 * WAIT_SECONDS)]
JOB = Path(__file__).parent / "versions_job.py"
VERSIONS = re.findall(r"^SPARKS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_short_job_reads_writes_and_runs_queries(kinesis, tmp_path, version):
    python = python_of(version)
    source, target = kinesis("versions-in"), kinesis("versions-out")
    source.put(50)
    access = {**source.served.endpoint.properties(), "flink.stream.initpos": "TRIM_HORIZON"}
    options = ({**access, "stream": source.name}, {**access, "stream": target.name}, str(tmp_path))
    environment = {**os.environ, "PYSPARK_PYTHON": python}
    command = [python, str(JOB), json.dumps(options)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]

    told = json.loads(done.stdout.splitlines()[-1])
    written = [json.loads(record.data) for record in target.records()]
    assert (told["version"], told["rows"], sorted(told["decoded"])) == (version, 50, list(range(50)))
    assert sorted(row["n"] for row in written if isinstance(row, dict)) == list(range(50))
    assert sorted(row for row in written if isinstance(row, int)) == list(range(5))
    assert sorted(number for batch in told["batches"] for number in batch) == sorted([*range(50)] * 2)
    if version >= "4.2":
        assert told["refused"] == ""
        return
    words = "triggerAvailableNowWrapper.enabled' is 'true': if it is true, PySpark 4.0 and 4.1 ask"
    assert words in told["refused"].splitlines()[0]
    assert len(told["refused"].splitlines()) < 20, "what Spark adds is its plan"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_row_once_after_a_kill_and_reshards(kinesis, tmp_path, version):
    """More of them: SPARK=4.0.2 KILL_ROUNDS=24 .venv/bin/pytest -s -m kills tests/plugins/spark/jobs/test_kills.py"""
    stream = kinesis("versions-killed", 3)
    job = Job(stream.options(tmp_path, maxRecordsPerBatch=5000), tmp_path, "foreach", "local[2]", version=version)
    with producing(stream), job.start() as running:
        running.wait_for_lines(2)
        stream.split(0)
        running.wait_for_lines(3)
        running.pause_at("claimed")
        running.kill()
        running.disarm()
        stream.merge(1)
    job.finish()
    outputs = sorted(tmp_path.glob("out-*"))
    assert len(outputs) == ACTIONS
    for output in outputs:
        assert sorted(map(int, pq.read_table(output, partitioning=None)["n"].to_pylist())) == list(range(stream.count))
