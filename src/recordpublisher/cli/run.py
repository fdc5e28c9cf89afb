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

from recordpublisher.plugins.runtime.jobs.progress import ProgressBoard
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties.properties import Properties

from .execution import exit_code, one_line
from .options import Pairs, read_properties

if TYPE_CHECKING:
    from recordpublisher.plugins.runtime.jobs.progress import ProgressBoard

log = logging.getLogger("recordpublisher.run")


class LogFormat(StrEnum):
    """What stderr is for."""

    TEXT = "text"
    JSON = "json"


def run(
    context: typer.Context,
    job: Annotated[Path, typer.Argument(metavar="JOB.properties", help="The job's properties.")],
    pairs: Pairs = None,
    parallelism: Annotated[int, typer.Option(min=1, help="Subtasks; more than one run as processes.")] = 1,
    log_format: Annotated[
        LogFormat, typer.Option(help="Log lines on stderr for people or for machines.")
    ] = LogFormat.TEXT,
    subtask: Annotated[int | None, typer.Option(hidden=True, help="Run this subtask, for a supervisor.")] = None,
) -> None:
    """Run a job until it is stopped: flink.streams into flink.sink, positions at flink.state.uri.

    SIGTERM or Ctrl-C drains, takes a checkpoint and exits 0; a second one exits at once. A subtask that fails ends the job.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # nothing has begun yet: until the job listens itself

    console = log_in(log_format.value, context.obj["verbose"])
    try:
        if subtask is not None:
            _run_as_subtask(subtask, parallelism)
        else:
            properties = read_properties(job, pairs)
            asyncio.run(_run(properties, job, parallelism, log_format, console))
    except RecordPublisherError as error:
        if log_format is not LogFormat.JSON:
            raise
        log.error("%s", one_line(error))  # noqa: TRY400 - a line, as everywhere on the command line
        raise typer.Exit(exit_code(error)) from None
    except Exception as error:
        if isinstance(error, (ImportError, OSError)) or context.obj["debug"]:
            raise
        # the sink is the user's: what it raises is told as what the library raises
        raise RecordPublisherError(one_line(error)) from error


def _run_as_subtask(subtask: int, parallelism: int) -> None:
    from recordpublisher.plugins.runtime.jobs.subtask import run_subtask
    from recordpublisher.plugins.runtime.jobs.supervisor import report_to_supervisor, told_by_supervisor

    properties, supervisor = told_by_supervisor()
    asyncio.run(run_subtask(properties, subtask, parallelism, report_to_supervisor, supervisor))


async def _run(properties: Properties, job: Path, parallelism: int, log_format: LogFormat, console: object) -> None:
    from recordpublisher.plugins.runtime.jobs.progress import ProgressBoard
    from recordpublisher.plugins.runtime.jobs.subtask import run_subtask, streams_of

    streams_of(properties)
    board = ProgressBoard()
    with shown(board, console):
        if parallelism == 1:
            await run_subtask(properties, 0, 1, board.take)
        else:
            await _supervise(properties, job, parallelism, log_format, board)


async def _supervise(
    properties: Properties, job: Path, parallelism: int, log_format: LogFormat, board: ProgressBoard
) -> None:
    from recordpublisher.plugins.runtime.jobs.supervisor import Supervisor, tracked

    command = [sys.executable, "-m", "recordpublisher", "run", str(job)]
    options = ["--parallelism", str(parallelism), "--log-format", log_format.value]
    async with tracked(properties) as told:
        await Supervisor([*command, *options], told, parallelism, board.take).run()


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


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message, and the traceback of an error that was logged with one."""

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
