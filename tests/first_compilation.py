"""At the first run each worker of xdist compiles its part of the test files and finds the others compiled; each did all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

FOLDERS = ("tests", "research")


def compile_part(config: pytest.Config) -> None:
    """Compile the part of this worker as pytest does when it imports a file. Nothing is imported: what a test sees may depend on it."""
    worker, count = os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    has_functions = all(hasattr(rewrite, name) for name in ("get_cache_dir", "_rewrite_test", "_write_pyc"))  # private
    if not worker.startswith("gw") or sys.dont_write_bytecode or not has_functions:
        return
    files = sorted(file for folder in FOLDERS for file in Path(config.rootpath, folder).rglob("test_*.py"))
    for file in files[int(worker.removeprefix("gw")) :: count]:
        _compile(file, config)


def _compile(file: Path, config: pytest.Config) -> None:
    compiled = rewrite.get_cache_dir(file) / (file.stem + rewrite.PYC_TAIL)
    if compiled.exists() and compiled.stat().st_mtime > file.stat().st_mtime:
        return
    compiled.parent.mkdir(exist_ok=True)
    stat, code = rewrite._rewrite_test(file, config)
    rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, stat, compiled)
