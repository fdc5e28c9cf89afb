"""Draws the stored results: cost per record next to peers and goals, and its growth with the number of shards."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.figures.results import Run
from benchmarks.figures.table import Row

OURS, THEIRS, GOAL = "#1f6f8b", "#c9c9c9", "#c0392b"
GROWTH = re.compile(r"(?P<name>.+), (?P<shards>[\d,]+) shards?")


def draw(rows: list[tuple[Row, Run]], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    bars = [row for row, _ in rows if row.unit == "us" and row.theirs is not None and row.section != "large records"]
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(13, 1.5 + 0.42 * max(len(bars), 8)), width_ratios=[3, 2], layout="constrained"
    )
    _bars(left, bars)
    _growth(right, [row for row, _ in rows if row.section == "many shards" and row.unit == "us"])
    file.parent.mkdir(exist_ok=True)
    figure.savefig(file, dpi=100)
    plt.close(figure)


def _bars(axis, rows: list[Row]) -> None:
    places = range(len(rows), 0, -1)
    axis.barh([place + 0.2 for place in places], [row.ours for row in rows], 0.38, color=OURS, label="recordpublisher")
    axis.barh([place - 0.2 for place in places], [row.theirs for row in rows], 0.38, color=THEIRS, label="the peer")
    for place, row in zip(places, rows, strict=True):
        axis.text(row.theirs * 1.05, place - 0.2, f"{row.peer}, {row.ratio:.1f}x", va="center", fontsize=7)
        if row.at_most is not None:
            axis.plot([row.at_most] * 2, [place, place + 0.4], color=GOAL, linewidth=2)
    axis.plot([], [], color=GOAL, linewidth=2, label="goal")
    axis.set_yticks(list(places), [row.path for row in rows], fontsize=8)
    axis.set_xscale("log")
    axis.set_xlim(0.3, 500)
    axis.set_xlabel("microseconds of CPU per record, whole process (logarithmic)")
    axis.legend(loc="upper right", fontsize=8)


def _growth(axis, rows: list[Row]) -> None:
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if found := GROWTH.fullmatch(row.path):
            lines.setdefault(found["name"], []).append((int(found["shards"].replace(",", "")), row.ours))
    for name, points in lines.items():
        axis.plot(*zip(*sorted(points), strict=True), marker="o", markersize=3, label=name)
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("shards (logarithmic)")
    axis.set_ylabel("microseconds of CPU per record")
    axis.grid(visible=True, alpha=0.3)
    if lines:
        axis.legend(fontsize=8)
