"""The job of the page of platforms runs as each section says, in an environment that is made as the page says."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from recordpublisher.local import serve_in_thread

from processes.command_line import ROOT
from processes.package_build import build

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3000)]
PAGE = ROOT / "docs/spark/platforms.md"
SECTIONS = dict(
    re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
)
UV = Path(sys.executable).parent / "uv"
BUILT_FROM = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in", "src")
LOCAL = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
WORKER_WAS_SLOW = "to connect back"
STARTS = 3
"""Spark gives a Python process ten seconds, which may not be enough on a machine that is shared."""
ONE_EXECUTOR = "local-cluster[1,2,1024]"
"""A driver and an executor in processes and folders of their own."""
DRIVERS_VARIABLE = re.compile(
    r"spark\.(?:emr-serverless\.driverEnv|yarn\.appMasterEnv|kubernetes\.driverEnv)\.(\w+)=(\S+)"
)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory) -> Path:
    """A folder in place of the bucket, with the job, and the archive that the page makes."""
    folder = tmp_path_factory.mktemp("bucket")
    shutil.copy(ROOT / "docs/spark/platform_job.py", folder)
    (folder / "spark").mkdir()  # executors make their folders there
    for entry in Path(pyspark.__file__).parent.iterdir():
        (folder / "spark" / entry.name).symlink_to(entry)
    checkout = folder / "checkout"
    for name in BUILT_FROM:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        checkout.mkdir(exist_ok=True)
        copy(ROOT / name, checkout / name)
    done = build(checkout, "--wheel", "--outdir", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    for line in commands("EMR Serverless"):
        made = line.replace("python3 -m venv", f"{UV} venv --python {sys.executable}")
        made = made.replace("environment/bin/pip install", f"{UV} pip install --python environment/bin/python")
        variables = {**os.environ, "UV_CONSTRAINT": str(ROOT / "constraints.txt")}
        subprocess.run(["bash", "-c", made], cwd=folder, env=variables, capture_output=True, check=True)
    return folder


@pytest.fixture(scope="module")
def served():
    with serve_in_thread(streams={"orders": 2}) as thread:
        thread.call(lambda: [thread.endpoint.stream("orders").put(b"%d" % n, f"key-{n}") for n in range(10)])
        yield thread


def commands(section: str) -> list[str]:
    """The commands of a section."""
    return re.findall(r"^\$ (.+)$", SECTIONS[section], re.MULTILINE)


def document(section: str) -> dict:
    return json.loads(re.search(r"```json\n(.*?)```", SECTIONS[section], re.DOTALL)[1])


def run(
    bucket: Path, served, folder: Path, options: list[str], arguments: list[str], master: str, **environment: str
) -> None:
    """Run the job with a section's options and arguments, where the driver's folder is as the platform makes it; look at its rows."""
    place = folder / "orders"
    more = {"flink.stream.initpos": "TRIM_HORIZON", "maxTasks": "1", **served.endpoint.properties()}
    given = [each.replace("s3://bucket/orders", str(place)) for each in arguments]
    given += [word for key, value in more.items() for word in ("--option", f"{key}={value}")]
    conf = [word for key, value in LOCAL.items() for word in ("--conf", f"{key}={value}")]
    words = [each.replace("s3://bucket", str(bucket)) for each in options]
    command = [bucket / "spark/bin/spark-submit", "--master", master, *conf, *words, bucket / "platform_job.py", *given]
    variables = {**os.environ, "SPARK_HOME": str(bucket / "spark"), **environment}
    for _ in range(STARTS):
        done = subprocess.run(
            command, cwd=folder, env=variables, capture_output=True, text=True, timeout=600, check=False
        )
        if WORKER_WAS_SLOW not in done.stderr:
            break
    assert done.returncode == 0, done.stderr[-4000:]
    assert pq.read_table(place / "rows", columns=["data"]).num_rows == 10
    assert len(list((place / "claims").iterdir())) == 2, "the query's folder, and that of the check"


def from_command(section: str) -> tuple[list[str], list[str]]:
    """The options of the section's `spark-submit` that Spark itself knows here, and the job's arguments."""
    (line,) = (line for line in commands(section) if line.startswith("spark-submit"))
    words = shlex.split(line)[1:]
    script = next(place for place, word in enumerate(words) if word.endswith("/platform_job.py"))
    options = list(zip(words[:script:2], words[1:script:2], strict=True))
    return [word for pair in options if pair[0] not in ("--master", "--deploy-mode") for word in pair], words[
        script + 1 :
    ]


def unpacked(bucket: Path, folder: Path, options: list[str]) -> dict[str, str]:
    """What the archive has in the driver's folder, where EMR unpacks it, and the variables that EMR gives the driver. The executor gets the
    archive itself."""
    (folder / "environment").symlink_to(bucket / "environment")
    return dict(DRIVERS_VARIABLE.findall(" ".join(options)))


def test_emr_serverless(bucket, served, tmp_path):
    job = document("EMR Serverless")
    options = shlex.split(job["sparkSubmitParameters"])
    variables = unpacked(bucket, tmp_path, options)
    run(bucket, served, tmp_path, options, job["entryPointArguments"], ONE_EXECUTOR, **variables)


def test_emr_on_ec2(bucket, served, tmp_path):
    options, arguments = from_command("EMR on EC2")
    variables = unpacked(bucket, tmp_path, options)
    run(bucket, served, tmp_path, options, arguments, ONE_EXECUTOR, **variables)


def test_glue(bucket, served, tmp_path):
    given = document("Glue")
    assert given.pop("--additional-python-modules").endswith(".whl")
    arguments = [word for pair in {"--JOB_NAME": "orders", **given}.items() for word in pair]
    run(bucket, served, tmp_path, [], arguments, "local[1]", **installed(bucket))


def test_databricks(bucket, served, tmp_path):
    arguments = document("Databricks")["spark_python_task"]["parameters"]
    run(bucket, served, tmp_path, [], arguments, "local[1]", **installed(bucket))


def test_kubernetes(bucket, served, tmp_path):
    options, arguments = from_command("Kubernetes")
    run(bucket, served, tmp_path, options, arguments, "local[1]", **installed(bucket))


def installed(bucket: Path) -> dict[str, str]:
    """The Python into which the wheel was installed."""
    return {"PYSPARK_PYTHON": str(bucket / "environment/bin/python")}
