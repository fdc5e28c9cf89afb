"""What the command line does when something fails: one line on stderr and an exit code, no traceback."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import warnings
from collections.abc import Coroutine
from typing import Any, TextIO, TypeVar

import typer
from typer.core import TyperGroup

from recordpublisher.plugins.runtime.jobs.termination import SubtaskFailedError
from recordpublisher.publishers.errors import ConfigurationError, PluginError, RecordPublisherError

FAILED = 1
BAD_CONFIGURATION = 2
ALARM = 3


class Commands(TyperGroup):
    """The group of all commands."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; turn what it raises into a line and an exit code."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # `| head` has seen enough
            _let_go_of_stdout()
            raise typer.Exit(0) from None
        except (RecordPublisherError, ImportError, OSError) as error:
            if _is_debugging(ctx):
                raise
            print_error(one_line(error))
            raise typer.Exit(exit_code(error)) from None
        return result


def exit_code(error: Exception) -> int:
    """2 when a person must change the configuration, else 1; a job's subtask has said which it is."""
    if isinstance(error, SubtaskFailedError):
        return error.exit_code
    return BAD_CONFIGURATION if isinstance(error, (ConfigurationError, PluginError, ImportError)) else FAILED


def one_line(error: BaseException) -> str:
    """The message without line ends; our own errors need no class name."""
    words = " ".join(str(error).split())
    return words if isinstance(error, RecordPublisherError) else f"{type(error).__name__}: {words}"


def print_error(line: str) -> None:
    """One line on stderr, under the command's name."""
    typer.echo(f"recordpublisher: {line}", err=True)


def show_warnings_in_one_line() -> None:
    """Warnings (of an unknown property, say) are for people here: no file, no source line."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        print_error(f"warning: {message}")

    warnings.showwarning = show


def _is_debugging(context: typer.Context) -> bool:
    return bool((context.obj or {}).get("debug"))


def _let_go_of_stdout() -> None:
    """Nobody reads any more; without this the interpreter complains when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


T = TypeVar("T")


def run_until_signal(work: Coroutine[Any, Any, T]) -> T | None:
    """Run `work` and answer its result; SIGINT (Ctrl-C) and SIGTERM cancel it, which lets it close what it opened, and count as a good
    end (None)."""
    return asyncio.run(_run(work))


async def _run(work: Coroutine[Any, Any, T]) -> T | None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    await asyncio.wait([task])
    return None if task.cancelled() else task.result()
