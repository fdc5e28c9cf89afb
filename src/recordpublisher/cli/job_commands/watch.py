"""Shows snapshots of a job again and again: on a terminal in one view that refreshes, elsewhere as one table after the other."""

import asyncio
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from recordpublisher.plugins.lag.job_snapshot import HistoryPoint, JobSnapshot, SnapshotSource, point_of
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import RecordPublisherError

from ..execution import one_line
from ..output import duration, echo, joined, rate
from .watch_lines import table_lines, title_lines, tree_lines

DRAW_SECONDS = 1.0
"""A terminal updates the age of the values once in this time (s), even while a reading takes long."""
PIPE_WIDTH = 120
BARS = "▁▂▃▄▅▆▇█"
POINTS = 30
"""Of a chart: at `lag --watch`'s 5 s they are two and a half minutes."""

Show = Callable[[JobSnapshot, int, str | None], None]
"""Shows a snapshot at a time (epoch ms), and why the last reading failed."""


class SnapshotWatch:
    """Owns the last snapshot that could be read, and why the last reading failed."""

    def __init__(self, source: SnapshotSource, clock: Clock, interval_seconds: float, show: Show) -> None:
        self._source = source
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._show = show
        self._error: str | None = None

    async def run(self, draw_seconds: float | None = None) -> None:
        """Show each reading, and between them the age of the last one after each `draw_seconds`, until it is cancelled.

        Raises: the RecordPublisherError of the first reading. A later one is shown, the values stay, and reading is tried again.
        """
        self._snapshot = await self._source.snapshot()
        self._draw()

        async def read_again() -> None:
            while True:
                await asyncio.sleep(self._interval_seconds)
                await self._read()
                self._draw()

        # Not a TaskGroup: it would raise the BrokenPipeError of a reader that has gone (`| head`) within a group.
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


async def watch(source: SnapshotSource, clock: Clock, interval_seconds: float) -> None:
    """Watch on stdout, until it is cancelled. Raises: the RecordPublisherError of the first reading."""
    if not sys.stdout.isatty():
        await SnapshotWatch(source, clock, interval_seconds, print_tables).run()
        return
    with terminal_view() as show:
        await SnapshotWatch(source, clock, interval_seconds, show).run(DRAW_SECONDS)


def print_tables(snapshot: JobSnapshot, now_ms: int, error: str | None) -> None:
    """Print every shard, and an empty line."""
    lines = [*title_lines(snapshot, now_ms, error, PIPE_WIDTH), *table_lines(snapshot, None), *tree_lines(snapshot)]
    echo(joined([*lines, ""]))
    sys.stdout.flush()


@contextmanager
def terminal_view() -> Iterator[Show]:
    """Take the whole terminal until the block ends; show as many shards as fit."""
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
    """Throughput and lag of the last minutes, as two small charts of one line. Owns the totals of the last readings."""

    def __init__(self) -> None:
        self._points: deque[HistoryPoint] = deque(maxlen=POINTS)

    def add(self, snapshot: JobSnapshot) -> None:
        """Take the totals of a snapshot, once."""
        if not self._points or self._points[-1].time_ms != snapshot.time_ms:
            self._points.append(point_of(snapshot))

    def line(self) -> str | None:
        """Return the charts of rate and lag, as far as they are known; None before there are two readings."""
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
    """Return a bar for each value, the highest for the largest. A value that is not known is a blank."""
    top = max((value for value in values if value is not None), default=0.0) or 1.0
    return "".join(" " if value is None else BARS[round(value / top * (len(BARS) - 1))] for value in values)
