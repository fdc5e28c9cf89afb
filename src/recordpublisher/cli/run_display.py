"""How a running job shows itself on stderr: a live line for a person, log lines for everybody else."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from recordpublisher.plugins.runtime.jobs.progress import ProgressBoard

from .logs import JsonLines

log = logging.getLogger("recordpublisher.run")
_LIVE_SECONDS, _LINE_SECONDS = 1.0, 10.0


def log_in(log_format: str, verbose: bool) -> Any:
    """Set up logging; answers rich's console when a person watches, else None."""
    log.setLevel(logging.INFO)
    root = logging.getLogger()
    if log_format == "json":
        root.handlers[0].setFormatter(JsonLines())
        return None
    if not sys.stderr.isatty() or verbose:
        return None
    from rich.console import Console
    from rich.logging import RichHandler

    console = Console(stderr=True)
    root.handlers = [RichHandler(console=console, show_path=False)]
    return console


@contextmanager
def shown(board: ProgressBoard, console: Any) -> Iterator[None]:
    """Show the board while the block runs, inside a running loop."""
    showing = asyncio.ensure_future(_lines(board) if console is None else _live(board, console))
    try:
        yield
    finally:
        showing.cancel()
        _say(board)


async def _lines(board: ProgressBoard) -> None:
    while True:
        await asyncio.sleep(_LINE_SECONDS)
        _say(board)


async def _live(board: ProgressBoard, console: Any) -> None:
    with console.status("starting") as status:
        while True:
            await asyncio.sleep(_LIVE_SECONDS)
            if board.has_news:
                status.update(str(board.total(time.monotonic())))


def _say(board: ProgressBoard) -> None:
    if not board.has_news:
        return
    total = board.total(time.monotonic())
    log.info("%s", total, extra={"fields": {"progress": asdict(total)}})
