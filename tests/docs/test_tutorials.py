"""The tutorials are run as written: their files are created, their commands run, their output compared."""

import shutil
import subprocess
import sys

import boto3
import pytest

from recordpublisher.local import serve_in_thread
from recordpublisher.testing import archive_of

from processes.command_line import ROOT, process_environment
from processes.documentation_page import blocks, installed_package, run_page

pytestmark = pytest.mark.slow
TUTORIAL = ROOT / "docs/tutorial"


@pytest.fixture
def served():
    with serve_in_thread(streams={"orders": 2}) as thread:
        yield thread


def test_first_sink(served, tmp_path):
    page, replacing = TUTORIAL / "first-sink.md", {"http://127.0.0.1:4567": served.url}

    assert run_page(page, tmp_path, replacing, installed_package(page, tmp_path, NOT_OF_THE_PACKAGE)) == 9


def test_exactly_once_sink(served, tmp_path):
    page, replacing = TUTORIAL / "exactly-once-sink.md", {"http://127.0.0.1:4567": served.url}

    assert run_page(page, tmp_path, replacing, installed_package(page, tmp_path, NOT_OF_THE_PACKAGE)) == 6


FIRST_PUBLISHER = TUTORIAL / "first-publisher.md"
DYNAMODB = ROOT / "docs/how-to/read-dynamodb-streams.md"
NOT_OF_THE_PACKAGE = ("test_lines.py", "job.properties")


def test_the_page_shows_the_package_that_is_tested():
    for block in blocks(FIRST_PUBLISHER, {}):
        if block.file_name not in (None, *NOT_OF_THE_PACKAGE):
            sample = ROOT / "examples" / "sample_publisher" / block.file_name
            assert block.text.partition("\n")[2] == sample.read_text(), block.file_name


def test_first_publisher(tmp_path):
    assert (
        run_page(FIRST_PUBLISHER, tmp_path, {}, installed_package(FIRST_PUBLISHER, tmp_path, NOT_OF_THE_PACKAGE)) == 5
    )


def test_read_dynamodb_streams(tmp_path):
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        url = "http://{}:{}".format(*server.get_host_and_port())
        dynamodb = boto3.client(
            "dynamodb", endpoint_url=url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y"
        )
        assert run_page(DYNAMODB, tmp_path, {"http://127.0.0.1:4567": url}) == 2
        dynamodb.delete_table(TableName="orders")
        dynamodb.close()
    finally:
        server.stop()


def test_the_past_that_is_kept_is_read_back(served, tmp_path):
    served.stream("orders").put("one", "two", "three", key="a")

    assert run_page(ROOT / "docs/how-to/keep-the-past.md", tmp_path, {"http://127.0.0.1:4567": served.url}) == 1


def test_a_copy_of_production_is_replayed(tmp_path):
    with archive_of(["a", "b"]) as properties:
        shutil.copytree(properties["flink.archive.uri"], tmp_path / "archive")

    assert run_page(ROOT / "docs/how-to/replay-production.md", tmp_path, {}) == 1


def test_read_a_queue(tmp_path):
    with serve_in_thread() as served:
        assert run_page(ROOT / "docs/how-to/read-a-queue.md", tmp_path, {"http://127.0.0.1:4567": served.url}) == 2


def test_the_job_that_calls_a_function_for_each_record_runs(tmp_path):
    assert run_page(ROOT / "docs/how-to/handle-each-record.md", tmp_path, {}) == 1


def test_the_page_of_formats_runs(tmp_path):
    assert run_page(ROOT / "docs/how-to/decode-records.md", tmp_path, {}) == 3


def test_the_tests_of_the_guide_pass(tmp_path):
    assert run_page(ROOT / "docs/how-to/test-your-job.md", tmp_path, {}) == 8


@pytest.mark.slow
def test_mypy_accepts_the_annotated_tests_of_the_guide(tmp_path):
    (typed,) = [each for each in blocks(ROOT / "docs/how-to/test-your-job.md", {}) if each.file_name == "test_typed.py"]
    (tmp_path / "test_typed.py").write_text(typed.text)
    line = [sys.executable, "-m", "mypy", "--strict", "test_typed.py"]
    ended = subprocess.run(
        line, cwd=tmp_path, env=process_environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
