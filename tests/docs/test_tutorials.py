"""The tutorials are played as written: their files are made, their commands run, their output compared."""

import os
import subprocess
import sys

import pytest
from command_line import ROOT
from walkthrough import blocks, play

from recordpublisher.plugins.local import serve_in_thread

TUTORIAL = ROOT / "docs/tutorial"


@pytest.fixture
def served():
    with serve_in_thread(streams={"orders": 2}) as thread:
        yield thread


def test_first_stream(served, tmp_path):
    assert play(TUTORIAL / "first-stream.md", tmp_path, {"http://127.0.0.1:4567": served.url}) == 7


def test_first_sink(served, tmp_path):
    for number in range(10):
        served.call(served.endpoint.stream("orders").put, b'{"order": %d}' % number, str(number))

    page, replacing = TUTORIAL / "first-sink.md", {"http://127.0.0.1:4567": served.url}
    package, site = tmp_path / "package", tmp_path / "site"
    write_files(page, package)
    install(package, site)

    assert play(page, tmp_path, replacing, site) == 7


def write_files(page, folder):
    for block in blocks(page, {}):
        if block.file_name is not None:
            (folder / block.file_name).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file_name).write_text(block.text)


def install(package, site):
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    line = [sys.executable, "-m", "pip", "install", *options, "--target", site, package]
    subprocess.run(line, check=True, env={**os.environ, "PIP_NO_INPUT": "1"})


def test_first_publisher_shows_the_sample_package():
    for block in blocks(TUTORIAL / "first-publisher.md", {}):
        if block.file_name not in (None, "test_lines.py"):
            sample = ROOT / "tests/plugins/sample_publisher" / block.file_name
            assert block.text.partition("\n")[2] == sample.read_text(), block.file_name


def test_first_publisher(tmp_path):
    package, site = tmp_path / "package", tmp_path / "site"
    write_files(TUTORIAL / "first-publisher.md", package)
    install(package, site)

    assert play(TUTORIAL / "first-publisher.md", tmp_path, {}, site) == 4


def test_the_tests_of_the_guide_pass(tmp_path):
    assert play(ROOT / "docs/how-to/test-your-job.md", tmp_path, {}) == 1
