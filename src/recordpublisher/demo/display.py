"""What the terminal shows while the demo runs: each shard's lag, rate, watermark and state; below, the global watermark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .progress import Story, quarter_of
from .schedule import DAY_MS, LAGGING, SILENT, SPLIT, TAKES_OVER

PARTS = {SPLIT: "is split", LAGGING: "lags", SILENT: "falls silent", TAKES_OVER: "takes over"}
LAG_BAR_DAYS = 100
SECONDS_BETWEEN_LINES = 10.0


class Screen:
    """Shows the story live on a terminal, and as a line from time to time elsewhere."""

    def __init__(self, story: Story, title: str) -> None:
        self._story = story
        self._title = title
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, refresh_per_second=4, transient=False)
        self._last_line = float("-inf")
        self._before: dict[str, tuple[float, int]] = {}
        self._rates: dict[str, float] = {}

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, elapsed: float) -> None:
        """Draw what is known after `elapsed` seconds."""
        self._measure(elapsed)
        if self._console.is_terminal:
            self._live.update(Group(self._table(), self._summary(elapsed)))
        elif elapsed - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = elapsed
            self._console.print(self._summary(elapsed), soft_wrap=True)

    def say(self, line: str) -> None:
        """A sentence for people."""
        self._console.print(line, highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        table = Table(title=self._title, expand=True)
        for column, justify in (("shard", "left"), ("part", "left"), ("behind", "left"), ("days", "right")):
            table.add_column(column, justify=justify)  # type: ignore[arg-type]
        for column in ("records", "records/s", "watermark", "state"):
            table.add_column(column, justify="right")
        for key, entry in sorted(self._story.shards.items()):
            table.add_row(*self._row(key, entry))
        return table

    def _row(self, key: str, entry: dict[str, Any]) -> list[Any]:
        part = "child of the split" if entry.get("parents") else PARTS[quarter_of(entry)]
        lag = lag_days(self._story, entry)
        bar = ProgressBar(total=LAG_BAR_DAYS, completed=min(lag, LAG_BAR_DAYS), width=24)
        rate = f"{self._rates.get(key, 0.0):,.0f}"
        moment = day(entry["at"].get("watermark"))
        return [key[-4:], part, bar, f"{lag:.0f}", f"{entry.get('records', 0):,}", rate, moment, state_of(entry)]

    def _summary(self, elapsed: float) -> Text:
        story = self._story
        known = [value for name, value in story.global_watermarks if name == "flights"]
        rows = ", ".join(f"{name} {count:,}" for name, count in sorted(story.rows.items()))
        return Text(
            f"{elapsed:5.0f} s   global watermark {day(known[-1] if known else None)}   played {sum(story.sent):,} of "
            f"{story.total:,}   out of Spark: {rows or 'nothing yet'}   held back {story.held_ms / 1000:,.0f} s"
        )

    def _measure(self, elapsed: float) -> None:
        """Records per second of each shard, from one report to the next."""
        for key, entry in self._story.shards.items():
            then, before = self._before.get(key, (elapsed, 0))
            now = entry.get("records", 0)
            if key not in self._before or (now != before and elapsed > then):
                self._rates[key] = (now - before) / (elapsed - then) if elapsed > then else 0.0
                self._before[key] = (elapsed, now)
            elif elapsed - then > 15:
                self._rates[key] = 0.0


def lag_days(story: Story, entry: dict[str, Any]) -> float:
    """How many event days a shard's watermark is behind what was played into it."""
    watermark = entry["at"].get("watermark")
    if watermark is None or entry["at"].get("ended") or entry["idle"]:
        return 0.0
    behind: int = story.reached[quarter_of(entry)] - watermark
    return max(0.0, behind / DAY_MS)


def state_of(entry: dict[str, Any]) -> Text:
    """Ended, idle, held back or reading."""
    if entry["at"].get("ended"):
        return Text("ended", style="dim")
    if entry["idle"]:
        return Text("idle", style="cyan")
    return Text("held back", style="yellow") if entry.get("head") is not None else Text("reading", style="green")


def day(millis: int | None) -> str:
    """An event time as a date."""
    return "-" if millis is None else datetime.fromtimestamp(millis / 1000, tz=UTC).strftime("%b %d %H:%M")
