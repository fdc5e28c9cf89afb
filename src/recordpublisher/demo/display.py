"""Shows each shard's lag, rate, watermark and state on the terminal while the demo runs, and the global watermark below."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .progress import DemoProgress, quarter_of
from .schedule import DAY_MS, LAGGING, SILENT, SPLIT, TAKES_OVER

ROLES = {SPLIT: "is split", LAGGING: "lags", SILENT: "falls silent", TAKES_OVER: "takes over"}
LAG_BAR_DAYS = 100
SECONDS_BETWEEN_LINES = 10.0


class ProgressDisplay:
    """Shows the progress live on a terminal, and as a line every ten seconds elsewhere."""

    def __init__(self, progress: DemoProgress, title: str) -> None:
        self._progress = progress
        self._title = title
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, refresh_per_second=4, transient=False)
        self._last_line = float("-inf")
        self._before: dict[str, tuple[float, int]] = {}
        self._rates: dict[str, float] = {}

    def __enter__(self) -> ProgressDisplay:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, elapsed: float) -> None:
        """Draw the progress after `elapsed` seconds."""
        self._measure(elapsed)
        if self._console.is_terminal:
            self._live.update(Group(self._table(), self._summary(elapsed)))
        elif elapsed - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = elapsed
            self._console.print(self._summary(elapsed), soft_wrap=True)

    def print_line(self, line: str) -> None:
        """Print a line above the table."""
        self._console.print(line, highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        table = Table(title=self._title, expand=True)
        for column, justify in (("shard", "left"), ("role", "left"), ("behind", "left"), ("days", "right")):
            table.add_column(column, justify=justify)  # type: ignore[arg-type]
        for column in ("records", "records/s", "watermark", "state"):
            table.add_column(column, justify="right")
        for key, entry in sorted(self._progress.shards.items()):
            table.add_row(*self._row(key, entry))
        return table

    def _row(self, key: str, entry: dict[str, Any]) -> list[Any]:
        role = "child of the split" if entry.get("parents") else ROLES[quarter_of(entry)]
        lag = lag_days(self._progress, entry)
        bar = ProgressBar(total=LAG_BAR_DAYS, completed=min(lag, LAG_BAR_DAYS), width=24)
        rate = f"{self._rates.get(key, 0.0):,.0f}"
        watermark = day(entry["state"].get("watermark"))
        return [key[-4:], role, bar, f"{lag:.0f}", f"{entry.get('records', 0):,}", rate, watermark, state_of(entry)]

    def _summary(self, elapsed: float) -> Text:
        progress = self._progress
        known = [value for name, value in progress.global_watermarks if name == "flights"]
        rows = ", ".join(f"{name} {count:,}" for name, count in sorted(progress.rows.items()))
        return Text(
            f"{elapsed:5.0f} s   global watermark {day(known[-1] if known else None)}   sent {sum(progress.sent):,} of "
            f"{progress.total:,}   written by Spark: {rows or 'nothing yet'}   held back {progress.held_ms / 1000:,.0f} s"
        )

    def _measure(self, elapsed: float) -> None:
        """Records per second of each shard, from one report to the next."""
        for key, entry in self._progress.shards.items():
            then, before = self._before.get(key, (elapsed, 0))
            now = entry.get("records", 0)
            if key not in self._before or (now != before and elapsed > then):
                self._rates[key] = (now - before) / (elapsed - then) if elapsed > then else 0.0
                self._before[key] = (elapsed, now)
            elif elapsed - then > 15:
                self._rates[key] = 0.0


def lag_days(progress: DemoProgress, entry: dict[str, Any]) -> float:
    """How many days of event time a shard's watermark is behind the last record sent to it."""
    watermark = entry["state"].get("watermark")
    if watermark is None or entry["state"].get("ended") or entry["idle"]:
        return 0.0
    behind: int = progress.sent_up_to[quarter_of(entry)] - watermark
    return max(0.0, behind / DAY_MS)


def state_of(entry: dict[str, Any]) -> Text:
    """Ended, idle, held back or reading."""
    if entry["state"].get("ended"):
        return Text("ended", style="dim")
    if entry["idle"]:
        return Text("idle", style="cyan")
    return (
        Text("held back", style="yellow")
        if entry.get("seen", {}).get("nextWatermark") is not None
        else Text("reading", style="green")
    )


def day(millis: int | None) -> str:
    """An event time as a date."""
    return "-" if millis is None else datetime.fromtimestamp(millis / 1000, tz=UTC).strftime("%b %d %H:%M")
