"""What `recordpublisher run` writes to stderr: log lines, and the job's progress."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from recordpublisher.plugins.runtime.jobs.progress import JobProgressMeter

from .log_format import TextLines, logs_json

log = logging.getLogger("recordpublisher.run")
_LIVE_SECONDS, _LINE_SECONDS = 1.0, 10.0


def configure_logging(verbose: bool) -> Any:
    """Set up logging; returns rich's console on a terminal, else None."""
    for shown in (log, logging.getLogger("recordpublisher.metrics"), logging.getLogger("recordpublisher.group")):
        shown.setLevel(min(logging.INFO, shown.getEffectiveLevel()))
    if logs_json() or not sys.stderr.isatty() or verbose:
        return None
    from rich.console import Console
    from rich.logging import RichHandler

    console = Console(stderr=True)
    handler = RichHandler(console=console, show_path=False, log_time_format="%Y-%m-%dT%H:%M:%S%z")
    handler.setFormatter(TextLines(has_head=False))
    logging.getLogger().handlers = [handler]
    return console


@contextmanager
def progress_shown(meter: JobProgressMeter, console: Any) -> Iterator[None]:
    """Show the meter while the block runs, inside a running loop."""
    showing = asyncio.ensure_future(_lines(meter) if console is None else _live(meter, console))
    try:
        yield
    finally:
        showing.cancel()
        _log_progress(meter)


async def _lines(meter: JobProgressMeter) -> None:
    while True:
        await asyncio.sleep(_LINE_SECONDS)
        _log_progress(meter)


async def _live(meter: JobProgressMeter, console: Any) -> None:
    with console.status("starting") as status:
        while True:
            await asyncio.sleep(_LIVE_SECONDS)
            if meter.has_reports:
                status.update(str(meter.sample(time.monotonic())))


def _log_progress(meter: JobProgressMeter) -> None:
    if not meter.has_reports:
        return
    total = meter.sample(time.monotonic())
    log.info("%s", total, extra={"fields": {"progress": asdict(total)}})
