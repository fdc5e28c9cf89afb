"""What Spark's daemon has imported before it forks workers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from recordpublisher.plugins.spark.worker_daemon import without_zips

from processes.command_line import process_environment

IMPORTED = """
import importlib, os, sys, threading
from recordpublisher.plugins.spark.worker_daemon import MODULES
for name in MODULES:
    importlib.import_module(name)
links = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{number}")]
print(threading.active_count(), sum(link.startswith(("socket:", "anon_inode:")) for link in links), "aiobotocore" in sys.modules)
"""


@pytest.mark.slow
def test_what_is_imported_before_the_fork_has_the_sdk_and_neither_threads_nor_sockets():
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, env=process_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0", "True"]


def test_the_zips_of_an_installed_pyspark_are_left_out():
    zips = [f"/venv/site-packages/pyspark/python/lib/{name}" for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]
    assert without_zips(["", *zips, "/usr/lib/python", "/venv/site-packages"]) == [
        "",
        "/usr/lib/python",
        "/venv/site-packages",
    ]


def test_the_zips_of_another_spark_are_kept():
    path = ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-0.10.9.9-src.zip", "/venv/site-packages"]
    assert without_zips(path) == path
