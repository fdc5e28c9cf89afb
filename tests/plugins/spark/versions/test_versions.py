"""Older versions of PySpark, as EMR 8 and Glue 6 have them: batch reads and all writing work, a query that reads is refused."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from processes.command_line import ROOT
from spark_jobs.queries import WAIT_SECONDS

pytestmark = [pytest.mark.versions, pytest.mark.timeout(3 * WAIT_SECONDS)]
JOB = Path(__file__).parent / "versions_job.py"


@pytest.mark.parametrize("version", ["4.0.2", "4.1.1"])
def test_a_short_job_reads_and_writes_and_a_query_is_refused_in_one_sentence(kinesis, tmp_path, version):
    python = str(ROOT / f".venvs/spark-{version}/bin/python")
    source, target = kinesis("versions-in"), kinesis("versions-out")
    source.put(50)
    access = source.served.endpoint.properties()
    options = ({**access, "stream": source.name}, {**access, "stream": target.name}, str(tmp_path))
    environment = {**os.environ, "PYSPARK_PYTHON": python}
    command = [python, str(JOB), json.dumps(options)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]

    told = json.loads(done.stdout.splitlines()[-1])
    written = [json.loads(record.data) for record in target.records()]
    assert (told["version"], told["rows"]) == (version, 50)
    assert sorted(row["n"] for row in written if isinstance(row, dict)) == list(range(50))
    assert sorted(row for row in written if isinstance(row, int)) == list(range(5))
    words = f"setting 'pyspark' has the value '{version}'; a query that reads needs a newer one"
    assert words in told["refused"].splitlines()[0]
    assert len(told["refused"].splitlines()) < 20, "what Spark adds is its plan"
