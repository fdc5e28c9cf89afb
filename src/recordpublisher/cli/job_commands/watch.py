"""Shows snapshots of a job again and again: on a terminal in one view that refreshes, elsewhere as one table after the other."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from recordpublisher.plugins.dashboard.snapshot import JobSnapshot, SnapshotSource
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import RecordPublisherError

from ..execution import one_line
from .snapshot_lines import table_lines, title_lines, tree_lines
from .trend import Trend

DRAW_SECONDS = 1.0
"""A terminal shows the age of the values anew this often, also while a reading takes long."""
PIPE_WIDTH = 120

Show = Callable[[JobSnapshot, int, str | None], None]
"""Shows a snapshot at a time (epoch ms), and why the last reading failed."""


class Watch:
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
        async with asyncio.TaskGroup() as tasks:
            if draw_seconds is not None:
                tasks.create_task(self._draw_again(draw_seconds))
            while True:
                await asyncio.sleep(self._interval_seconds)
                await self._read()
                self._draw()

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
        await Watch(source, clock, interval_seconds, print_tables).run()
        return
    with terminal_view() as show:
        await Watch(source, clock, interval_seconds, show).run(DRAW_SECONDS)


def print_tables(snapshot: JobSnapshot, now_ms: int, error: str | None) -> None:
    """Print every shard, and an empty line."""
    lines = [*title_lines(snapshot, now_ms, error, PIPE_WIDTH), *table_lines(snapshot, None), *tree_lines(snapshot)]
    typer.echo("\n".join([*lines, ""]))
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
