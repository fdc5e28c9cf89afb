"""The diagram of the data flow is what the code draws today."""

import runpy

from processes.command_line import ROOT


def test_the_committed_diagram_is_the_one_that_the_code_draws():
    drawn = runpy.run_path(str(ROOT / "docs" / "draw_data_flow.py"))["drawing"]()

    assert (ROOT / "docs" / "images" / "data-flow.svg").read_text(encoding="utf-8") == drawn, "run make docs"
