"""Runs commands: an error becomes one line on stderr and an exit code, without a traceback."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import warnings
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, TypeVar

import typer
from typer.core import TyperGroup

from recordpublisher.plugins.runtime.jobs.termination import SubtaskFailedError
from recordpublisher.publishers.errors import ConfigurationError, PluginError, RecordPublisherError

from .log_format import logs_json

log = logging.getLogger("recordpublisher.command")
log.setLevel(logging.INFO)
FAILED = 1
BAD_CONFIGURATION = 2
ALARM = 3
PATIENCE_SECONDS = 5.0


class Commands(TyperGroup):
    """The group of all commands."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; turn what it raises into a line and an exit code."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has gone, as with `| head`
            _discard_stdout()
            raise typer.Exit(0) from None
        except (RecordPublisherError, ImportError, OSError) as error:
            if _is_debugging(ctx):
                raise
            print_error(one_line(error))
            raise typer.Exit(exit_code(error)) from None
        return result


@contextmanager
def arguments_as_options(*names: str) -> Iterator[None]:
    """Name the option where the library's error names its argument: `--port` for `port`. Raises: ConfigurationError."""
    try:
        yield
    except ConfigurationError as error:
        if error.key not in names:
            raise
        raise ConfigurationError(f"--{error.key}", error.value, error.valid, reason=error.reason) from error


def exit_code(error: Exception) -> int:
    """2 when the configuration must change, else 1; a failed subtask brings its own code."""
    if isinstance(error, SubtaskFailedError):
        return error.exit_code
    return BAD_CONFIGURATION if isinstance(error, (ConfigurationError, PluginError, ImportError)) else FAILED


def one_line(error: BaseException) -> str:
    """The message in one line; an error that is not ours comes with its class name, or its file, unless it says which extra to install."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    text = " ".join(str(error).split())
    if isinstance(error, RecordPublisherError) or (isinstance(error, ImportError) and "pip install" in text):
        return text
    return f"{type(error).__name__}: {text}"


def print_error(line: str, level: int = logging.ERROR) -> None:
    """Print one line on stderr, after the command's name; with `--log-format json` as a log entry of this level."""
    if logs_json():
        log.log(level, "%s", line)
    else:
        typer.echo(f"recordpublisher: {line}", err=True)


def show_warnings_in_one_line() -> None:
    """Print warnings, as of an unknown property, without file and source line."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        print_error(f"warning: {message}", logging.WARNING)

    warnings.showwarning = show


def _is_debugging(context: typer.Context) -> bool:
    return bool((context.obj or {}).get("debug"))


def _discard_stdout() -> None:
    """Nobody reads stdout any more; without this the interpreter reports an error when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


T = TypeVar("T")


def run_until_signal(work: Coroutine[Any, Any, T]) -> T | None:
    """Run `work` and return its result. SIGINT (Ctrl-C) and SIGTERM cancel it, so that it can close what it opened; the result is then
    None, which is no error. More of them wait for the closing, for `PATIENCE_SECONDS`; a later one breaks it off."""
    return asyncio.run(_run(work))


async def _run(work: Coroutine[Any, Any, T]) -> T | None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    first: list[float] = []

    def cancel() -> None:
        if not first or loop.time() - first[0] > PATIENCE_SECONDS:
            task.cancel()
        first.append(loop.time())

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, cancel)
    await asyncio.wait([task])
    return None if task.cancelled() else task.result()
