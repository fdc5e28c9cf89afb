"""The page about frames does what it says, with polars, pandas, DuckDB and pyarrow."""

import pytest

from recordpublisher.local import serve_in_thread

from processes.command_line import ROOT, sdk_environment
from processes.documentation_page import run_page

PAGE = ROOT / "docs/how-to/read-into-a-frame.md"
QUIET = {"import duckdb\n": "import duckdb; duckdb.sql('SET enable_progress_bar = false')\n"}
"""It would show a bar where the machine is slow."""


@pytest.mark.slow
def test_the_page_does_what_it_says(monkeypatch, tmp_path):
    with serve_in_thread(streams={"orders": 1}) as served:
        served.stream("orders").put({"item": "tea", "price": 3.5}, key="customer-1")
        served.stream("orders").put({"item": "cup", "price": 8.0}, key="customer-2")
        for name, value in sdk_environment(served).items():
            monkeypatch.setenv(name, value)

        assert run_page(PAGE, tmp_path, QUIET) == 6
