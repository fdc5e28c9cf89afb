"""Everything that the README shows runs, and says what the README says."""

import subprocess
import sys

import pytest

from recordpublisher.local import serve_in_thread

from processes.command_line import ROOT, command, process_environment
from processes.documentation_page import blocks, run_page

README = ROOT / "README.md"


@pytest.fixture
def endpoint():
    with serve_in_thread(streams={"orders": 2}) as served:
        yield {"http://127.0.0.1:4567": served.url}


def test_the_readme_runs_from_top_to_bottom(endpoint, tmp_path):
    assert run_page(README, tmp_path, endpoint) == 6


def test_the_commands_of_the_table_are_those_there_are():
    listed = command("--help").stdout.split("Commands:")[1]
    row = next(line for line in README.read_text().splitlines() if line.startswith("| Command line |"))
    today, not_yet = (cell.split("`")[1::2] for cell in row.split("|")[2:4])

    assert sorted(today) == sorted(line.split()[0] for line in listed.strip().splitlines())
    assert not set(not_yet) & set(today)


@pytest.mark.spark
@pytest.mark.timeout(700)
def test_the_spark_example_writes_every_record(endpoint, tmp_path):
    import pyarrow.parquet

    run_page(README, tmp_path, endpoint)
    (code,) = [block.text for block in blocks(README, endpoint) if "SparkSession" in block.text]
    local = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell"}
    environment = process_environment(PYSPARK_PYTHON=sys.executable, **local)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=600)

    assert pyarrow.parquet.read_table(tmp_path / "orders.parquet").num_rows == 10
