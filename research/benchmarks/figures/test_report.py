"""The page of measured figures says what was measured: its tables are written from the kept figures and cannot be edited apart."""

from dataclasses import replace

from benchmarks.figures import report, results
from benchmarks.figures.results import Run
from benchmarks.figures.table import Row

RUN = Run("2026-01-01", "3.11.7", 2, 0.5)
MISSED = Row("polling", 2.5, 10.0, at_most=2.0, at_least=5, section="pipeline")
PAGE = "above\n<!-- measured: pipeline -->\nold\n<!-- end -->\nbelow\n"


def test_the_page_is_what_the_figures_make_of_it():  # else: make report
    page = report.PAGE.read_text()

    assert report.filled(page, results.measured(), results.load()["shares"]) == page


def test_a_figure_stands_beside_its_goal_with_a_verdict():
    page = report.filled(PAGE, [(MISSED, RUN)], {})

    assert (
        "| polling | 2.50 us | 2.00 us | boto3 | 10.00 us | 4.0x | 5x | **missed**: 25% over, ratio 20% short | 0.5 |"
        in page
    )
    assert "old" not in page
    assert page.startswith("above\n")
    assert page.endswith("below\n")


def test_columns_without_anything_in_them_are_left_out():
    alone = replace(MISSED, theirs=None, at_least=None)

    page = report.filled(PAGE, [(alone, RUN)], {})

    assert "| path | ours | goal | verdict | load |" in page


def test_a_later_figure_takes_the_place_of_the_former_one_and_of_no_other(tmp_path):
    kept = tmp_path / "kept.json"
    other = replace(MISSED, peer="another")
    results.keep([MISSED, other], kept)

    results.keep([replace(MISSED, ours=1.0)], kept)

    assert [(row.peer, row.ours) for row, _ in results.measured(kept)] == [("boto3", 1.0), ("another", 2.5)]


def test_shares_of_layers_stand_beside_each_other():
    page = report.filled(PAGE.replace("pipeline", "shares"), [], {"a": {"decode": 0.25}, "b": {"loop": 0.5}})

    assert "| layer | a | b |\n| --- | --- | --- |\n| loop |  | 50% |\n| decode | 25% |  |" in page
