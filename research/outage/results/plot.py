"""Draws event time over wall time for each worker, the global watermark, and when it was stopped, idle or held. Needs matplotlib."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..scenario import DAY_MS, MINUTE_MS
from .event_log import EventLog, MetricsSample

COLOURS = ("tab:blue", "tab:red", "tab:green")
STATES = {"stopped": "black", "idle": "lightgrey", "held": "tab:orange"}
REPORT_SECONDS = 0.25
"""A little more than between two reports: the shortest bar of a state."""
MAX_GAP_SECONDS = 1.0
"""Between two reports of a worker, in seconds; a longer one is a break in its line."""


def draw(log: EventLog, title: str, unit: str, path: Path) -> None:
    """Write the picture of a replay as PNG; `unit` of event time is minutes or days."""
    figure, (above, below) = _canvas()
    unit_ms = MINUTE_MS if unit == "minutes" else DAY_MS
    reports = [report for report in log.reports if report.at >= 0]
    origin = _origin(reports)

    def event_time(value: int | None) -> float:
        return float("nan") if value is None else (value - origin) / unit_ms

    numbers = sorted({report.process for report in reports})
    for number in numbers:
        own = _with_breaks(report for report in reports if report.process == number)
        _draw_worker(above, number, own, event_time)
        _draw_states(below, number, [each for each in own if each is not None])
    _draw_actions(above, below, log)
    _draw_alarms(below, log)
    above.set_title(title, loc="left", fontsize=11)
    above.set_ylabel(f"event time, {unit}")
    figure.legend(handles=_legend(numbers), loc="outside right upper", fontsize=8)
    below.set_yticks(numbers, [f"worker {number}" for number in numbers], fontsize=8)
    below.set_ylim(max(numbers) + 0.6, min(numbers) - 0.6)
    below.set_xlim(0, max((report.at for report in reports), default=1.0))
    actions = [f"{place}  {what}" for place, (_, what, _) in enumerate(log.actions, start=1)]
    below.set_xlabel("\n".join(["wall time, seconds", *actions]), fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)


def _canvas() -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 6.2), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))


def _origin(reports: Iterable[MetricsSample]) -> int:
    known = [each for report in reports for each in (report.watermark, report.held_watermark) if each is not None]
    return min(known, default=0)


def _with_breaks(reports: Iterable[MetricsSample]) -> list[MetricsSample | None]:
    """The reports of one worker, with None in each gap."""
    found: list[MetricsSample | None] = []
    for report in reports:
        last = found[-1] if found else None
        if last is not None and report.at - last.at > MAX_GAP_SECONDS:
            found.append(None)
        found.append(report)
    return found


def _draw_worker(
    axes: Any, number: int, reports: list[MetricsSample | None], event_time: Callable[[int | None], float]
) -> None:
    colour, nan = COLOURS[number % len(COLOURS)], float("nan")
    at = [nan if each is None else each.at for each in reports]
    written = [nan if each is None else event_time(each.watermark) for each in reports]
    known = [nan if each is None else event_time(each.global_watermark) for each in reports]
    waiting = [nan if each is None else event_time(each.held_watermark) for each in reports]
    axes.plot(at, written, color=colour, linewidth=2.5, alpha=0.6)
    axes.plot(at, known, color=colour, linewidth=1.2, linestyle=":")
    axes.plot(at, waiting, color=colour, linestyle="none", marker="x", markersize=4)


def _draw_states(axes: Any, number: int, reports: list[MetricsSample]) -> None:
    """Bars of the states of a worker: stopped (no reports), idle, held."""
    for earlier, later in itertools.pairwise(reports):
        if later.at - earlier.at > MAX_GAP_SECONDS:
            _bar(axes, number, earlier.at, later.at - earlier.at, "stopped")
    for report in reports:
        if report.held_watermark is not None:
            _bar(axes, number, report.at, REPORT_SECONDS, "held")
        elif report.is_idle:
            _bar(axes, number, report.at, REPORT_SECONDS, "idle")


def _bar(axes: Any, number: int, at: float, seconds: float, state: str) -> None:
    axes.barh(number, seconds, left=at, height=0.7, color=STATES[state], linewidth=0)


def _draw_actions(above: Any, below: Any, log: EventLog) -> None:
    for place, (at, _, _) in enumerate(log.actions, start=1):
        for axes in (above, below):
            axes.axvline(at, color="grey", linewidth=0.8, linestyle="--")
        above.annotate(f" {place}", (at, 0.98), xycoords=("data", "axes fraction"), va="top", fontsize=9)


def _draw_alarms(axes: Any, log: EventLog) -> None:
    for at, number, alarm in log.alarms:
        if not alarm["is_over"]:
            axes.plot(at, number, marker="^", color="tab:red", markersize=7, zorder=3)


def _legend(numbers: Iterable[int]) -> list[Any]:
    """Colours are workers; line styles and bars are explained below them."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    workers = [
        Line2D([], [], color=COLOURS[each % len(COLOURS)], linewidth=2.5, label=f"worker {each}") for each in numbers
    ]
    return [
        *workers,
        Line2D([], [], color="grey", linewidth=2.5, label="written"),
        Line2D([], [], color="grey", linestyle=":", label="global watermark, as it knows it"),
        Line2D([], [], color="grey", marker="x", linestyle="none", label="next record, held back"),
        *(Patch(color=colour, label=state) for state, colour in STATES.items()),
        Line2D([], [], color="tab:red", marker="^", linestyle="none", label="alarm"),
    ]
