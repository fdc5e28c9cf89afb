"""The README's try-out and the quick starts of each role are run as written, and write what they say."""

import sqlite3
import subprocess
import sys

import pytest

from recordpublisher.local import serve_in_thread

from processes.command_line import ROOT, process_environment, sdk_environment
from processes.documentation_page import installed_package, run_page

PAGES = ROOT / "docs/quick-start"
pytestmark = pytest.mark.slow


@pytest.fixture
def endpoint():
    with serve_in_thread(streams={"orders": 2}) as served:
        yield {"http://127.0.0.1:4567": served.url}


def test_readme(tmp_path, monkeypatch):
    with serve_in_thread(streams={"orders": 1}) as served:
        for name, value in sdk_environment(served).items():
            monkeypatch.setenv(name, value)

        assert run_page(ROOT / "README.md", tmp_path, {}) == 2


def test_script(endpoint, tmp_path):
    assert run_page(PAGES / "script.md", tmp_path, endpoint) == 3


def test_service(endpoint, tmp_path):
    assert run_page(PAGES / "service.md", tmp_path, endpoint) == 4

    with sqlite3.connect(tmp_path / "orders.db") as database:
        assert database.execute("SELECT count(*) FROM orders").fetchone() == (3,)


def test_plugin(tmp_path):
    page = PAGES / "plugin.md"

    assert run_page(page, tmp_path, {}, installed_package(page, tmp_path)) == 3


@pytest.mark.spark
@pytest.mark.timeout(700)
def test_spark(endpoint, tmp_path):
    import pyarrow.parquet

    page = PAGES / "spark.md"
    run_page(page, tmp_path, endpoint)
    local = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell"}
    environment = process_environment(**local)
    environment.pop("PYSPARK_PYTHON", None)  # the page's own snippet sets it

    def run(program):
        line = [sys.executable, program]
        done = subprocess.run(
            line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=600
        )
        return done.stdout

    assert "|ben" in run("look.py")
    run("follow.py")
    assert pyarrow.parquet.read_table(tmp_path / "orders.parquet").num_rows == 3
