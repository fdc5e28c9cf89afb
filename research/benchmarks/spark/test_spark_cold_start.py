"""CPU of a Python worker above that of an empty source: its first task, a warm one, and the first after a task that failed (printed)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recordpublisher.local import serve_in_thread

from spark_jobs import cold_start_job
from spark_jobs.empty_format import FOLDER
from spark_jobs.queries import Kinesis

pytestmark = [pytest.mark.spark, pytest.mark.benchmark, pytest.mark.timeout(900)]
DAEMON = {"spark.python.daemon.module": "recordpublisher.plugins.spark.worker_daemon"}
BASIC = "aws.credentials.provider.basic."


@pytest.mark.parametrize("conf", [{}, DAEMON], ids=["Spark's daemon", "worker_daemon"])
def test_cold_start(tmp_path, conf):
    (empty,) = run("empty", {}, tmp_path / "empty", 1, conf)
    for name, credentials in {"static": {}, "of a profile": profile_in(tmp_path)}.items():
        with serve_in_thread() as served:
            stream = Kinesis(served, "cold", 1)
            stream.put(100)
            options = stream.options(tmp_path)
            if credentials:
                options = {key: value for key, value in options.items() if not key.startswith(BASIC)}
            first, second, failed, retried = run("measured", {**options, **credentials}, tmp_path / name, 3, conf)
        assert first["pid"] == second["pid"] == failed["pid"] != retried["pid"]
        above = [task["ended"] - empty["ended"] for task in (first, retried)]
        print(
            f"\n{conf.get('spark.python.daemon.module', 'Spark')}, credentials {name}: first {above[0]:.2f} s, after a task that failed "
            f"{above[1]:.2f} s, warm {second['ended'] - second['began']:.3f} s; empty source {empty['ended']:.2f} s"
        )


def profile_in(folder: Path) -> dict[str, str]:
    (folder / "credentials").write_text("[cold]\naws_access_key_id = a\naws_secret_access_key = s\n")
    return {
        "aws.credentials.provider": "PROFILE",
        "aws.credentials.provider.profile.name": "cold",
        "aws.credentials.provider.profile.path": str(folder / "credentials"),
    }


def run(source: str, options: dict[str, str], folder: Path, actions: int, conf: dict[str, str]) -> list[dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    job = {"source": source, "options": {**options, FOLDER: str(folder)}, "actions": actions, "conf": conf}
    tests = str(Path(cold_start_job.__file__).parents[1])
    paths = [tests, *(path for path in sys.path if path.endswith("src")), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}
    subprocess.run([sys.executable, cold_start_job.__file__, json.dumps(job)], check=True, timeout=600, env=environment)
    return [json.loads(line) for line in (folder / "notes").read_text().splitlines()]
