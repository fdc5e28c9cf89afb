"""Shows each shard's lag, rate, watermark and state on the terminal while the demo runs, from the progress of Spark's batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .schedule import DAY_MS, LAGGING, SHARDS, SILENT, SPLIT, TAKES_OVER

HASH_BITS = 128


@dataclass
class DemoProgress:
    """The latest report of each process, and the values that the checks at the end need."""

    total: int
    sent: list[int] = field(default_factory=lambda: [0] * SHARDS)
    sent_up_to: list[int] = field(default_factory=lambda: [0] * SHARDS)
    elapsed: float = 0.0
    all_sent: bool = False
    offsets: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    shards: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen_idle: set[str] = field(default_factory=set)
    global_watermarks: list[tuple[str, int]] = field(default_factory=list)

    def add_producer_report(self, report: dict[str, Any]) -> None:
        """Add a report of the producer."""
        self.sent, self.sent_up_to = report["sent"], report["sentUpToByQuarter"]
        self.elapsed, self.all_sent = report["elapsed"], report["done"]

    def add_query_progress(self, progress: dict[str, Any]) -> None:
        """Add a progress report of a query; its offset holds the state of every shard."""
        name, source = progress["name"], progress["sources"][0]
        offset = source["endOffset"]
        if not isinstance(offset, dict):
            return
        self.offsets[name] = offset
        rows = offset["records"] + source["numInputRows"]
        # A query that waits reports its last offset again, with 0 rows.
        self.rows[name] = max(rows, self.rows.get(name, 0))
        self.seen_idle |= {key for key, entry in offset["shards"].items() if entry.get("idle")}
        if name == "flights":
            self._update_shards(offset["shards"])
        if offset.get("globalWatermark") is not None:
            self.global_watermarks.append((name, offset["globalWatermark"]))

    def _update_shards(self, entries: dict[str, dict[str, Any]]) -> None:
        """Keep the state of each shard. A shard that the offset no longer contains was read to its end."""
        for key, entry in self.shards.items():
            if key not in entries:
                self.shards[key] = {**entry, "state": {**entry["state"], "ended": True}}
        for key, entry in entries.items():
            self.shards[key] = {"idle": False, **entry}

    @property
    def is_complete(self) -> bool:
        """Whether both queries have written all records that were sent."""
        return self.all_sent and len(self.rows) == 2 and all(count >= self.total for count in self.rows.values())

    @property
    def held_ms(self) -> int:
        """Time for which alignment held shards back, summed over the shards (ms)."""
        return sum(entry.get("held", {}).get("ms", 0) for entry in self.shards.values())


def quarter_of(entry: dict[str, Any]) -> int:
    """Return which of the first four shards this shard is, or descends from."""
    return int(entry["range"].split("-")[0], 16) * SHARDS >> HASH_BITS


ROLES = {SPLIT: "is split", LAGGING: "lags", SILENT: "falls silent", TAKES_OVER: "takes over"}
LAG_BAR_DAYS = 100
SECONDS_BETWEEN_LINES = 10.0


class ProgressDisplay:
    """Shows the progress live on a terminal. If the output is not a terminal, prints a line every ten seconds."""

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
        """Compute the records per second of each shard, from one report to the next."""
        for key, entry in self._progress.shards.items():
            then, before = self._before.get(key, (elapsed, 0))
            now = entry.get("records", 0)
            if key not in self._before or (now != before and elapsed > then):
                self._rates[key] = (now - before) / (elapsed - then) if elapsed > then else 0.0
                self._before[key] = (elapsed, now)
            elif elapsed - then > 15:
                self._rates[key] = 0.0


def lag_days(progress: DemoProgress, entry: dict[str, Any]) -> float:
    """Return how many days of event time a shard's watermark is behind the last record sent to it."""
    watermark = entry["state"].get("watermark")
    if watermark is None or entry["state"].get("ended") or entry["idle"]:
        return 0.0
    behind: int = progress.sent_up_to[quarter_of(entry)] - watermark
    return max(0.0, behind / DAY_MS)


def state_of(entry: dict[str, Any]) -> Text:
    """Return the state of a shard: ended, idle, held back or reading."""
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
    """Return an event time (epoch ms) as a date."""
    return "-" if millis is None else datetime.fromtimestamp(millis / 1000, tz=UTC).strftime("%b %d %H:%M")
