"""Figures are kept, and their tables stand between the marks of a page."""

import pytest

from compare import tables
from compare.tables import KeptFigures, markdown, write_between_marks


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    return tmp_path


def test_figures_are_kept_by_client_with_the_conditions_of_their_measurement(folder, monkeypatch):
    monkeypatch.setattr(tables, "seen_now", lambda: {"day": "2026-11-23", "load": 1.5})
    KeptFigures("kept.json").add("x", {"rows": 1})
    monkeypatch.setattr(tables, "seen_now", lambda: {"day": "2026-11-24", "load": 3})
    KeptFigures("kept.json").add("y", {"rows": 2})

    again = KeptFigures("kept.json")

    assert {name: row["rows"] for name, row in again.rows.items()} == {"x": 1, "y": 2}
    assert again.conditions.startswith("*Measured 2026-11-23 and 2026-11-24, load 1.5 to 3 on ")


def test_a_table_replaces_what_stands_between_its_marks(folder):
    page = folder / "page.md"
    page.write_text("before\n<!-- own -->\nold\n<!-- end -->\n<!-- other -->\nkept\n<!-- end -->\n")
    write_between_marks("page.md", "own", markdown(("a", "b"), [("1", "2")]))

    assert page.read_text() == (
        "before\n<!-- own -->\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n<!-- end -->\n<!-- other -->\nkept\n<!-- end -->\n"
    )
    with pytest.raises(AssertionError, match="has the mark missing 0 times"):
        write_between_marks("page.md", "missing", "")
