"""A third-party publisher, really installed with pip, chosen by its name (contract, section Plugins; P5)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import command

SAMPLE = Path(__file__).parent / "sample_publisher"


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """A folder into which the sample package is installed; the build gets a copy, since it writes beside its sources."""
    sources = tmp_path_factory.mktemp("sources") / "sample"
    shutil.copytree(SAMPLE, sources)
    target = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", target, sources],
        check=True,
        env={**os.environ, "PIP_NO_INPUT": "1"},
    )
    return target


def test_the_installed_plugin_is_listed(site):
    done = command("plugins", path=site)

    assert "lines, of sample-publisher 1.2.3: loaded" in done.stdout
    assert "LINES (sample-publisher)" in done.stdout


def test_a_blocked_plugin_claims_nothing(site):
    done = command("plugins", path=site, RECORDPUBLISHER_BLOCK_PLUGINS="sample_publisher")

    assert "lines, of sample-publisher 1.2.3: blocked" in done.stdout
    assert "LINES" not in done.stdout


def test_its_properties_join_the_list(site):
    assert "flink.lines.folder" in command("properties", path=site).stdout
