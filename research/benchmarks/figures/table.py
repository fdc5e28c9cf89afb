"""Rows of the table: measured values and their goals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

UNITS: dict[str, Callable[[float], str]] = {
    "us": lambda value: f"{value:.2f} us",
    "ms": lambda value: f"{value:.2f} ms",
    "s": lambda value: f"{value:.2f} s",
    "MB": lambda value: f"{value:.0f} MB",
    "%": lambda value: f"{value:.1f} %",
    "x": lambda value: f"{value:.2f}x",
}


@dataclass(frozen=True)
class Row:
    """One figure of one path, ours and a peer's in the same run, in `unit` (us: microseconds of CPU per record); smaller is better.

    `at_most` is the goal of ours, `at_least` that of the ratio; None where none is set. Where larger is better, `at_least_ours` is
    the goal of ours. Rows of a `section` stand together.
    """

    path: str
    ours: float
    theirs: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    peer: str = "boto3"
    section: str = "pipeline"
    unit: str = "us"
    at_least_ours: float | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies the measured value: a later run has the same key."""
        return self.section, self.path, "" if self.theirs is None else self.peer

    @property
    def ratio(self) -> float | None:
        return None if self.theirs is None else self.theirs / self.ours

    @property
    def verdict(self) -> str:
        missed = []
        if self.at_most is not None and self.ours > self.at_most:
            missed.append(f"{self.ours / self.at_most - 1:.0%} over")
        if self.at_least_ours is not None and self.ours < self.at_least_ours:
            missed.append(f"{1 - self.ours / self.at_least_ours:.0%} short")
        if self.at_least is not None and self.ratio is not None and self.ratio < self.at_least:
            missed.append(f"ratio {1 - self.ratio / self.at_least:.0%} short")
        if self.at_most is None and self.at_least is None and self.at_least_ours is None:
            return ""
        return f"missed: {', '.join(missed)}" if missed else "met"


def cells(row: Row) -> list[str]:
    """Path, ours, goal, peer, theirs, ratio, its goal, verdict: as text, empty where unknown."""
    shown = UNITS[row.unit]
    goal = "" if row.at_most is None else shown(row.at_most)
    goal = goal if row.at_least_ours is None else f">= {shown(row.at_least_ours)}"
    ratio_goal = "" if row.at_least is None else f"{row.at_least:g}x"
    theirs = ["", "", ""] if row.theirs is None else [row.peer, shown(row.theirs), f"{row.ratio:.1f}x"]
    return [row.path, shown(row.ours), goal, *theirs, ratio_goal, row.verdict]


HEAD = ["path", "ours", "goal", "peer", "theirs", "ratio", "goal", "verdict"]


def line(row: Row) -> str:
    return aligned(cells(row))


def head() -> str:
    return aligned(HEAD)


def aligned(texts: list[str]) -> str:
    path, ours, goal, peer, theirs, ratio, ratio_goal, verdict = texts
    return f"{path:52}{ours:>10}{goal:>10}  {peer:17}{theirs:>10}{ratio:>8}{ratio_goal:>7}  {verdict}".rstrip()
