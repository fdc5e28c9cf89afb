"""What `recordpublisher run` writes to stderr: log lines as text or JSON, and the job's progress."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from recordpublisher.plugins.runtime.jobs.progress import JobProgressMeter

log = logging.getLogger("recordpublisher.run")


class LogFormat(StrEnum):
    """The format of log lines on stderr."""

    TEXT = "text"
    JSON = "json"


_LIVE_SECONDS, _LINE_SECONDS = 1.0, 10.0


def configure_logging(log_format: str, verbose: bool) -> Any:
    """Set up logging; returns rich's console on a terminal, else None."""
    for shown in (log, logging.getLogger("recordpublisher.metrics")):
        shown.setLevel(min(logging.INFO, shown.getEffectiveLevel()))
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


class JsonLines(logging.Formatter):
    """Formats each log entry as one JSON object: time, level, logger, message, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        entry = {
            "time": datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)
