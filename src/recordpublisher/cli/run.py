"""`recordpublisher run`: a job from its properties file."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recordpublisher.plugins.runtime.jobs.progress import JobProgressMeter
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties.properties import Properties

from .execution import exit_code, one_line
from .options import Pairs, read_properties

if TYPE_CHECKING:
    from recordpublisher.plugins.runtime.jobs.progress import JobProgressMeter

log = logging.getLogger("recordpublisher.run")


class LogFormat(StrEnum):
    """The format of log lines on stderr."""

    TEXT = "text"
    JSON = "json"


def run(
    context: typer.Context,
    job: Annotated[Path, typer.Argument(metavar="JOB.properties", help="The job's properties.")],
    pairs: Pairs = None,
    parallelism: Annotated[int, typer.Option(min=1, help="Subtasks; more than one run as processes.")] = 1,
    log_format: Annotated[LogFormat, typer.Option(help="Format of log lines on stderr.")] = LogFormat.TEXT,
    subtask: Annotated[int | None, typer.Option(hidden=True, help="Run this subtask, for a supervisor.")] = None,
) -> None:
    """Run a job until it is stopped: flink.streams into flink.sink, positions at flink.state.uri.

    SIGTERM or Ctrl-C drains, takes a checkpoint and exits 0; a second one exits at once. A subtask that fails ends the job.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # nothing has begun yet; the job sets its own handler

    console = configure_logging(log_format.value, context.obj["verbose"])
    try:
        if subtask is not None:
            _run_as_subtask(subtask, parallelism)
        else:
            properties = read_properties(job, pairs)
            asyncio.run(_run(properties, job, parallelism, log_format, console))
    except RecordPublisherError as error:
        if log_format is not LogFormat.JSON:
            raise
        log.error("%s", one_line(error))  # noqa: TRY400 - one line, as for every command
        raise typer.Exit(exit_code(error)) from None
    except Exception as error:
        if isinstance(error, (ImportError, OSError)) or context.obj["debug"]:
            raise
        # the sink is the user's: its errors are reported like the library's
        raise RecordPublisherError(one_line(error)) from error


def _run_as_subtask(subtask: int, parallelism: int) -> None:
    from recordpublisher.plugins.runtime.jobs.subtask import run_subtask
    from recordpublisher.plugins.runtime.jobs.supervisor import read_from_supervisor, report_to_supervisor

    properties, supervisor = read_from_supervisor()
    asyncio.run(run_subtask(properties, subtask, parallelism, report_to_supervisor, supervisor))


async def _run(properties: Properties, job: Path, parallelism: int, log_format: LogFormat, console: object) -> None:
    from recordpublisher.plugins.runtime.jobs.progress import JobProgressMeter
    from recordpublisher.plugins.runtime.jobs.subtask import run_subtask, streams_of

    streams_of(properties)
    meter = JobProgressMeter()
    with progress_shown(meter, console):
        if parallelism == 1:
            await run_subtask(properties, 0, 1, meter.update)
        else:
            await _supervise(properties, job, parallelism, log_format, meter)


async def _supervise(
    properties: Properties, job: Path, parallelism: int, log_format: LogFormat, meter: JobProgressMeter
) -> None:
    from recordpublisher.plugins.runtime.jobs.supervisor import Supervisor, with_local_tracker

    command = [sys.executable, "-m", "recordpublisher", "run", str(job)]
    options = ["--parallelism", str(parallelism), "--log-format", log_format.value]
    async with with_local_tracker(properties) as job_properties:
        await Supervisor([*command, *options], job_properties, parallelism, meter.update).run()


_LIVE_SECONDS, _LINE_SECONDS = 1.0, 10.0


def configure_logging(log_format: str, verbose: bool) -> Any:
    """Set up logging; returns rich's console on a terminal, else None."""
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
