"""Shows snapshots of a job again and again: on a terminal in one view that refreshes, elsewhere as one table after the other.

The lines are totals, what alignment waits for, and a table of shards with the worst lag first.
"""

import asyncio
import os
import sys
import textwrap
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from recordpublisher.plugins.lag.job_snapshot import (
    CommitSnapshot,
    HistoryPoint,
    JobSnapshot,
    ShardSnapshot,
    SnapshotSource,
    point_of,
)
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.safe_text import counted

from .execution import one_line
from .output import aligned, duration, echo, joined, printable, rate, yes_no
from .shard_tree import reshard_lines

DRAW_SECONDS = 1.0
"""A terminal updates the age of the values once in this time (s), even while a reading takes long."""
PIPE_WIDTH = 120
BARS = "▁▂▃▄▅▆▇█"
POINTS = 30
"""The number of readings in a chart. At the 5 s of `lag --watch` they are two and a half minutes."""

ShowSnapshot = Callable[[JobSnapshot, int, str | None], None]
"""Shows a snapshot. The other arguments are the time now (epoch ms), and why the last reading failed, or None."""


async def watch(source: SnapshotSource, clock: Clock, interval_seconds: float) -> None:
    """Show new snapshots of a job on stdout until cancelled. Raises: the RecordPublisherError of the first reading."""
    if not sys.stdout.isatty():
        await SnapshotWatch(source, clock, interval_seconds, print_tables).run()
        return
    with terminal_view() as show:
        await SnapshotWatch(source, clock, interval_seconds, show).run(DRAW_SECONDS)


class SnapshotWatch:
    """Shows new snapshots of a job until cancelled. Owns the last snapshot that could be read, and why the last reading failed."""

    def __init__(self, source: SnapshotSource, clock: Clock, interval_seconds: float, show: ShowSnapshot) -> None:
        self._source = source
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._show = show
        self._error: str | None = None

    async def run(self, draw_seconds: float | None = None) -> None:
        """Show each reading until cancelled. Between two readings, show the age of the last values every `draw_seconds`.

        An error of a later reading is shown with the last values, and the next reading is tried.

        Raises: the RecordPublisherError of the first reading.
        """
        self._snapshot = await self._source.snapshot()
        self._draw()

        async def read_again() -> None:
            while True:
                await asyncio.sleep(self._interval_seconds)
                await self._read()
                self._draw()

        # Not a TaskGroup, which would wrap the BrokenPipeError of `| head` in an ExceptionGroup.
        tasks = [asyncio.ensure_future(read_again())]
        if draw_seconds is not None:
            tasks.append(asyncio.ensure_future(self._draw_again(draw_seconds)))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _read(self) -> None:
        try:
            self._snapshot, self._error = await self._source.snapshot(), None
        except RecordPublisherError as error:
            self._error = one_line(error)

    async def _draw_again(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            self._draw()

    def _draw(self) -> None:
        self._show(self._snapshot, self._clock.now_ms(), self._error)


def print_tables(snapshot: JobSnapshot, now_ms: int, error: str | None) -> None:
    """Print a snapshot: its totals, a line for each shard, the tree of shards, and an empty line."""
    lines = [*title_lines(snapshot, now_ms, error, PIPE_WIDTH), *table_lines(snapshot, None), *tree_lines(snapshot)]
    echo(joined([*lines, ""]))
    sys.stdout.flush()


@contextmanager
def terminal_view() -> Iterator[ShowSnapshot]:
    """Use the whole terminal until the block ends. Yield the function that shows a snapshot there, with as many shards as fit."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    bold, red = ("", "") if os.environ.get("NO_COLOR") else ("bold", "red")

    trend = Trend()

    def show(snapshot: JobSnapshot, now_ms: int, error: str | None) -> None:
        trend.add(snapshot)
        width, height = console.size
        title = title_lines(snapshot, now_ms, error, width)
        title += [line] if (line := trend.line()) is not None else []
        head, *rows = table_lines(snapshot, height - len(title) - 1)
        tree = tree_lines(snapshot)
        rows += tree if len(title) + len(rows) + len(tree) + 2 <= height else []
        shown = Text("\n".join([*title, "", ""]), no_wrap=True, overflow="ellipsis")
        shown.append(head, bold)
        for row in rows:
            shown.append(f"\n{row}", red if row.endswith("ALARM") else "")
        live.update(shown, refresh=True)

    with Live(Text("reading the shards"), console=console, screen=True, auto_refresh=False) as live:
        yield show


class Trend:
    """Draws throughput and lag of the last minutes as two charts in one line."""

    def __init__(self) -> None:
        self._points: deque[HistoryPoint] = deque(maxlen=POINTS)

    def add(self, snapshot: JobSnapshot) -> None:
        """Add the totals of a snapshot, unless it was added before."""
        if not self._points or self._points[-1].time_ms != snapshot.time_ms:
            self._points.append(point_of(snapshot))

    def line(self) -> str | None:
        """Return one line with the charts of rate and lag. Return None before there are two readings, or if neither value is known."""
        if len(self._points) < 2:
            return None
        rates = [point.records_per_second for point in self._points]
        lags = [point.lag_ms for point in self._points]
        charts = [
            f"{name} {bars(values)} {last}"
            for name, values, last in (("records/s", rates, rate(rates[-1])), ("largest lag", lags, duration(lags[-1])))
            if any(value is not None for value in values)
        ]
        span = duration(self._points[-1].time_ms - self._points[0].time_ms)
        return f"In {span}: {', '.join(charts)}" if charts else None


def bars(values: Sequence[float | None]) -> str:
    """Return a text with a bar for each value. The largest value has the highest bar, and an unknown value has a blank."""
    top = max((value for value in values if value is not None), default=0.0) or 1.0
    return "".join(" " if value is None else BARS[round(value / top * (len(BARS) - 1))] for value in values)


# --- the lines of `lag --watch` -------------------------------------------------------------------------------------------------------

HEAD = ("SHARD", "WORKER", "LAG", "RECORDS/S", "WATERMARK", "IDLE", "HELD", "LOST IN", "")
GROUP_HEAD = ("SHARD", "WORKER", *HEAD[2:])
MIN_ROWS = 1
"""The least number of shards that are shown, even if the terminal has fewer lines."""
MAX_LINES = 4
"""Most lines of one sentence above the table. A longer sentence, as an error can be, is cut."""


def title_lines(snapshot: JobSnapshot, now_ms: int, error: str | None, width: int) -> list[str]:
    """Return the totals, the alignment and the age of the values, wrapped to the width. `error`: why the last reading failed."""
    shown = [
        _totals(snapshot),
        snapshot.alignment,
        _silence(snapshot),
        _checkpoints(snapshot),
        _commits(snapshot),
        _counts(snapshot),
        _age(snapshot, now_ms, error),
    ]
    return [
        line
        for text in shown
        if text is not None
        for line in textwrap.wrap(printable(text), max(width, 20), max_lines=MAX_LINES)
    ]


def table_lines(snapshot: JobSnapshot, height: int | None) -> list[str]:
    """Return a head and a line for each shard. If they need more than `height` lines, the last line says how many shards are not shown."""
    shards = sorted(snapshot.shards, key=_urgency)
    count = len(shards)
    if height is not None and count + 1 > height:
        count = max(height - 2, MIN_ROWS)
    head = GROUP_HEAD if any(shard.worker is not None for shard in shards) else HEAD
    lines = aligned([head, *(_row(shard, snapshot.global_watermark) for shard in shards[:count])])
    left = len(shards) - count
    return [*lines, f"{left:,} more with less lag"] if left else [*lines]


def tree_lines(snapshot: JobSnapshot) -> list[str]:
    """Return lines with the shards that were split or merged, children below their parents; empty if there are none or they are unknown."""
    streams = {shard.stream for shard in snapshot.shards}

    def name(shard: ShardSnapshot, shard_id: str) -> str:
        return shard_id if len(streams) == 1 else f"{shard.stream}/{shard_id}"

    parents = {
        name(each, each.shard): [name(each, parent) for parent in each.parents or ()] for each in snapshot.shards
    }
    lines = reshard_lines(parents)
    return ["", "Splits and merges", *lines] if lines else []


def _urgency(shard: ShardSnapshot) -> tuple[bool, float, str]:
    """Return the sort key of a shard: alarms come first, then the largest lag, and unknown lags come last."""
    return not shard.alarm, float("inf") if shard.lag_ms is None else -shard.lag_ms, shard.shard


def _totals(snapshot: JobSnapshot) -> str:
    shards = snapshot.shards
    counts = {
        "idle": sum(bool(shard.is_idle) for shard in shards),
        "held": sum(bool(shard.is_held) for shard in shards),
        "with an alarm": sum(bool(shard.alarm) for shard in shards),
        "records in flight": sum(shard.in_flight or 0 for shard in shards),
    }
    parts = [counted(len(shards), "shard")]
    parts += [f"{count:,} {name}" for name, count in counts.items() if count]
    parts += [] if snapshot.records_per_second is None else [f"{rate(snapshot.records_per_second)} records/s"]
    parts += [] if snapshot.lag_ms is None else [f"at most {duration(snapshot.lag_ms)} behind"]
    if snapshot.global_watermark is not None:
        parts.append(f"global watermark {duration(snapshot.time_ms - snapshot.global_watermark)} ago")
    return ", ".join(parts)


def _silence(snapshot: JobSnapshot) -> str | None:
    silent = [str(each.process) for each in snapshot.workers or () if each.responds is False]
    return f"Shards of workers that do not respond are not shown: {', '.join(silent)}" if silent else None


def _checkpoints(snapshot: JobSnapshot) -> str | None:
    ages = [
        f"{each.worker or f'worker {each.process}'} {duration(each.checkpoint_age_ms)}"
        for each in snapshot.workers or ()
        if each.checkpoint_age_ms is not None
    ]
    return f"Since the last checkpoint: {', '.join(ages)}" if ages else None


def _commits(snapshot: JobSnapshot) -> str | None:
    commits = [
        f"{each.worker or each.process} {_commit(each.commit)}"
        for each in snapshot.workers or ()
        if each.commit is not None
    ]
    return f"Last commit: {'; '.join(commits)}" if commits else None


def _counts(snapshot: JobSnapshot) -> str | None:
    counts = [f"{title} {count:,}" for title, count in snapshot.counts.items() if count]
    return f"Since the start of each worker: {', '.join(counts)}" if counts else None


def _commit(commit: CommitSnapshot) -> str:
    waiting = f"{counted(commit.waiting_records, 'record')} {'waits' if commit.waiting_records == 1 else 'wait'}"
    if commit.age_ms is None:
        return f"none yet, {waiting}"
    files = f"{counted(commit.files, 'file')}, {commit.bytes:,} bytes, " if commit.files else ""
    return f"{duration(commit.age_ms)} ago, {files}{waiting}"


def _age(snapshot: JobSnapshot, now_ms: int, error: str | None) -> str:
    read = datetime.fromtimestamp(snapshot.time_ms / 1000, UTC).strftime("%H:%M:%S")
    text = f"Read at {read} UTC, {max(0, now_ms - snapshot.time_ms) // 1000} s ago"
    return text if error is None else f"{text}; the values are old because reading fails: {error}"


def _row(shard: ShardSnapshot, global_watermark: int | None) -> tuple[str, ...]:
    return (
        shard.shard,
        shard.worker or ("-" if shard.process is None else str(shard.process)),
        duration(shard.lag_ms),
        rate(shard.records_per_second),
        _relative(shard.watermark, global_watermark),
        yes_no(shard.is_idle),
        yes_no(shard.is_held),
        duration(shard.loss_ms),
        "ALARM" if shard.alarm else "",
    )


def _relative(watermark: int | None, global_watermark: int | None) -> str:
    """Return a watermark relative to the global one. `+4.2 s` means ahead of it."""
    if watermark is None or global_watermark is None:
        return "-"
    ahead_ms = watermark - global_watermark
    return f"+{duration(ahead_ms)}" if ahead_ms > 0 else duration(ahead_ms)
