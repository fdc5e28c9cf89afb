"""Writes the tables of research/benchmarks/README.md, and the picture, from the stored results (`make report`)."""

from __future__ import annotations

import re
import sys
from typing import Any

from benchmarks.figures import results
from benchmarks.figures.results import Run
from benchmarks.figures.table import HEAD, Row, cells

PAGE = results.FILE.with_name("README.md")
PICTURE = PAGE.parents[2] / "docs" / "images" / "performance.png"
MARKED = re.compile(r"(<!-- measured: (?P<what>[^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
"""The text between the two lines is generated."""

NOTHING = "*Not measured yet.*\n"

Measured = list[tuple[Row, Run]]


def filled(page: str, rows: Measured, shares: dict[str, Any]) -> str:
    """The page with every marked part regenerated."""
    parts = {
        section: section_table([each for each in rows if each[0].section == section]) for section in sections(rows)
    }
    if shares:
        parts["shares"] = shares_table(shares)
    return MARKED.sub(lambda found: f"{found[1]}\n{parts.get(found['what'], NOTHING)}\n{found[3]}", page)


def sections(rows: Measured) -> list[str]:
    return list(dict.fromkeys(row.section for row, _ in rows))


def section_table(rows: Measured) -> str:
    """A table in Markdown, with the runs in which it was measured."""
    shown = [[*cells(row), f"{run.load:g}"] for row, run in rows]
    heads = [*HEAD, "load"]
    # columns that are empty in every row are omitted
    used = [index for index in range(len(heads)) if any(row[index] for row in shown)]
    lines = [heads, ["---"] * len(heads), *(_with_verdict(row) for row in shown)]
    table = "\n".join("| " + " | ".join(line[index] for index in used) + " |" for line in lines)
    runs = dict.fromkeys(f"{run.day}, Python {run.python}, {run.cores} cores" for _, run in rows)
    return f"{table}\n\n*Measured {'; '.join(runs)}.*\n"


def _with_verdict(row: list[str]) -> list[str]:
    return [text.replace("missed", "**missed**", 1) for text in row]


def shares_table(shares: dict[str, dict[str, float]]) -> str:
    """A table with a row for each layer and a column for each path."""
    layers = list(dict.fromkeys(layer for of_path in shares.values() for layer in of_path))
    layers.sort(key=lambda layer: -sum(of_path.get(layer, 0) for of_path in shares.values()))
    heads = [["layer", *shares], ["---"] * (len(shares) + 1)]
    lines = [[layer, *(_percent(of_path.get(layer, 0)) for of_path in shares.values())] for layer in layers]
    return "\n".join("| " + " | ".join(line) + " |" for line in [*heads, *lines]) + "\n"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else ""


def main() -> None:
    rows = results.measured()
    page = PAGE.read_text()
    PAGE.write_text(filled(page, rows, results.load()["shares"]))
    unplaced = set(sections(rows)) - {found["what"] for found in MARKED.finditer(page)}
    for section in sorted(unplaced):
        sys.stderr.write(f"{PAGE.name} has no place for {section}: add <!-- measured: {section} --> and <!-- end -->\n")
    from benchmarks.figures.picture import draw

    draw(rows, PICTURE)
    sys.stdout.write(f"written: {PAGE}, {PICTURE}\n")


if __name__ == "__main__":
    main()
