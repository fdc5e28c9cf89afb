"""Rows of the table: what was measured, beside the goal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """Microseconds of CPU per record of one path, ours and a peer's in the same run; goals are None where none is set."""

    path: str
    ours: float
    theirs: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    peer: str = "boto3"

    @property
    def ratio(self) -> float | None:
        return None if self.theirs is None else self.theirs / self.ours

    @property
    def verdict(self) -> str:
        missed = []
        if self.at_most is not None and self.ours > self.at_most:
            missed.append(f"{self.ours / self.at_most - 1:.0%} over")
        if self.at_least is not None and self.ratio is not None and self.ratio < self.at_least:
            missed.append(f"ratio {1 - self.ratio / self.at_least:.0%} short")
        if self.at_most is None and self.at_least is None:
            return ""
        return f"missed: {', '.join(missed)}" if missed else "met"


def head() -> str:
    return f"{'path':44}{'us/record':>10}{'goal':>7}  {'peer':16}{'us/record':>10}{'ratio':>8}{'goal':>7}  "


def line(row: Row) -> str:
    goal = "" if row.at_most is None else f"{row.at_most:.1f}"
    ratio_goal = "" if row.at_least is None else f"{row.at_least:g}x"
    theirs, ratio, peer = ("", "", "") if row.theirs is None else (f"{row.theirs:.2f}", f"{row.ratio:.1f}x", row.peer)
    return f"{row.path:44}{row.ours:10.2f}{goal:>7}  {peer:16}{theirs:>10}{ratio:>8}{ratio_goal:>7}  {row.verdict}"
