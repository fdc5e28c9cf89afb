"""`recordpublisher run`: a job from its properties file."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    from .run_display import log_in

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

    from .run_display import shown

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
    from recordpublisher.plugins.runtime.jobs.supervisor import Supervisor
    from recordpublisher.plugins.runtime.jobs.tracking import tracked

    command = [sys.executable, "-m", "recordpublisher", "run", str(job)]
    options = ["--parallelism", str(parallelism), "--log-format", log_format.value]
    async with tracked(properties) as told:
        await Supervisor([*command, *options], told, parallelism, board.take).run()
