"""Over Spark Connect the listeners run in the client: figures are served there, and consumers deregistered from there."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time

import pytest

from processes.command_line import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]
JOB = ROOT / "tests/spark_jobs/connect_listeners_job.py"


def test_a_client_serves_the_figures_of_its_query_and_deregisters_its_consumer(kinesis, tmp_path):
    if importlib.util.find_spec("grpc") is None:
        pytest.skip("Spark Connect needs grpcio: pip install 'pyspark[connect]'")
    stream = kinesis("connected")
    stream.put(500)
    fan_out = {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "connected"}
    options = stream.options(tmp_path, **fan_out)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, str(JOB), str(tmp_path), json.dumps(options), "500"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    page = json.loads(done.stdout.splitlines()[-1])
    assert 'recordpublisher_spark_records_total{query="connected",source="0"} 500\n' in page
    deadline = time.monotonic() + 60
    while stream.served.call(lambda: list(stream.stream.consumers.all())):  # it is DELETING for a moment
        assert time.monotonic() < deadline
        time.sleep(0.05)
