"""The page about tests of a Spark job is run as written: its tests pass."""

from __future__ import annotations

import pytest

from processes.command_line import ROOT
from processes.documentation_page import run_page

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_the_tests_of_the_page_pass(tmp_path):
    assert run_page(ROOT / "docs/spark/test-a-job.md", tmp_path, {}) == 1
