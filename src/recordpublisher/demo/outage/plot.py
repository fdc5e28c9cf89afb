"""The picture: event time over wall time for each subtask, the global watermark, and who was stopped, idle or held. Needs matplotlib."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .event_log import Moment, Recording
from .scenario import DAY_MS, MINUTE_MS

COLOURS = ("tab:blue", "tab:red", "tab:green")
STATES = {"stopped": "black", "idle": "lightgrey", "held": "tab:orange"}
REPORT_SECONDS = 0.25
"""A little more than between two reports: so long a state lasts at least."""
LONGEST_GAP = 1.0
"""Between two reports of a subtask, in seconds; a longer one shows as a break in its line."""


def draw(recording: Recording, title: str, unit: str, path: Path) -> None:
    """Write the picture of a play as PNG; `unit` of event time is minutes or days."""
    figure, (above, below) = _canvas()
    unit_ms = MINUTE_MS if unit == "minutes" else DAY_MS
    moments = [moment for moment in recording.moments if moment.at >= 0]
    origin = _origin(moments)

    def event_time(value: int | None) -> float:
        return float("nan") if value is None else (value - origin) / unit_ms

    numbers = sorted({moment.subtask for moment in moments})
    for number in numbers:
        own = _with_breaks(moment for moment in moments if moment.subtask == number)
        _draw_subtask(above, number, own, event_time)
        _draw_lane(below, number, [each for each in own if each is not None])
    _draw_acts(above, below, recording)
    _draw_alarms(below, recording)
    above.set_title(title, loc="left", fontsize=11)
    above.set_ylabel(f"event time, {unit}")
    figure.legend(handles=_legend(numbers), loc="outside right upper", fontsize=8)
    below.set_yticks(numbers, [f"subtask {number}" for number in numbers], fontsize=8)
    below.set_ylim(max(numbers) + 0.6, min(numbers) - 0.6)
    below.set_xlim(0, max((moment.at for moment in moments), default=1.0))
    acts = [f"{place}  {what}" for place, (_, what, _) in enumerate(recording.acts, start=1)]
    below.set_xlabel("\n".join(["wall time, seconds", *acts]), fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)


def _canvas() -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 6.2), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))


def _origin(moments: Iterable[Moment]) -> int:
    known = [each for moment in moments for each in (moment.watermark, moment.waiting) if each is not None]
    return min(known, default=0)


def _with_breaks(moments: Iterable[Moment]) -> list[Moment | None]:
    """The reports of one subtask, with None where it was silent for long."""
    found: list[Moment | None] = []
    for moment in moments:
        last = found[-1] if found else None
        if last is not None and moment.at - last.at > LONGEST_GAP:
            found.append(None)
        found.append(moment)
    return found


def _draw_subtask(
    axes: Any, number: int, moments: list[Moment | None], event_time: Callable[[int | None], float]
) -> None:
    colour, nan = COLOURS[number % len(COLOURS)], float("nan")
    at = [nan if each is None else each.at for each in moments]
    written = [nan if each is None else event_time(each.watermark) for each in moments]
    known = [nan if each is None else event_time(each.value) for each in moments]
    waiting = [nan if each is None else event_time(each.waiting) for each in moments]
    axes.plot(at, written, color=colour, linewidth=2.5, alpha=0.6)
    axes.plot(at, known, color=colour, linewidth=1.2, linestyle=":")
    axes.plot(at, waiting, color=colour, linestyle="none", marker="x", markersize=4)


def _draw_lane(axes: Any, number: int, moments: list[Moment]) -> None:
    """What a subtask was: stopped (no reports), idle, held."""
    for earlier, later in itertools.pairwise(moments):
        if later.at - earlier.at > LONGEST_GAP:
            _bar(axes, number, earlier.at, later.at - earlier.at, "stopped")
    for moment in moments:
        if moment.waiting is not None:
            _bar(axes, number, moment.at, REPORT_SECONDS, "held")
        elif moment.is_idle:
            _bar(axes, number, moment.at, REPORT_SECONDS, "idle")


def _bar(axes: Any, number: int, at: float, seconds: float, state: str) -> None:
    axes.barh(number, seconds, left=at, height=0.7, color=STATES[state], linewidth=0)


def _draw_acts(above: Any, below: Any, recording: Recording) -> None:
    for place, (at, _, _) in enumerate(recording.acts, start=1):
        for axes in (above, below):
            axes.axvline(at, color="grey", linewidth=0.8, linestyle="--")
        above.annotate(f" {place}", (at, 0.98), xycoords=("data", "axes fraction"), va="top", fontsize=9)


def _draw_alarms(axes: Any, recording: Recording) -> None:
    for at, number, alarm in recording.alarms:
        if not alarm["is_over"]:
            axes.plot(at, number, marker="^", color="tab:red", markersize=7, zorder=3)


def _legend(numbers: Iterable[int]) -> list[Any]:
    """Colours are subtasks, strokes are what of them."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    subtasks = [
        Line2D([], [], color=COLOURS[each % len(COLOURS)], linewidth=2.5, label=f"subtask {each}") for each in numbers
    ]
    return [
        *subtasks,
        Line2D([], [], color="grey", linewidth=2.5, label="written"),
        Line2D([], [], color="grey", linestyle=":", label="global watermark, as it knows it"),
        Line2D([], [], color="grey", marker="x", linestyle="none", label="next record, held back"),
        *(Patch(color=colour, label=state) for state, colour in STATES.items()),
        Line2D([], [], color="tab:red", marker="^", linestyle="none", label="alarm"),
    ]
