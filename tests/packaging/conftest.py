"""What is built from a checkout, once for all tests that look at it."""

import shutil
from pathlib import Path

import pytest

from processes.command_line import ROOT
from processes.package_build import build

LEFT_OUT = (".git", ".venv*", ".*_cache", ".hypothesis", ".demo", "__pycache__", "*.egg-info", "node_modules")
BUILT = ("build", "dist")


@pytest.fixture(scope="session")
def checkout(tmp_path_factory) -> Path:
    """A copy; a build writes beside its sources."""
    copy = tmp_path_factory.mktemp("checkout") / "recordpublisher"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for name in BUILT:
        shutil.rmtree(copy / name, ignore_errors=True)
    return copy


@pytest.fixture(scope="session")
def built(checkout) -> Path:
    """The sdist and the wheel that is built from it, as `python -m build` does."""
    done = build(checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    return checkout / "dist"
