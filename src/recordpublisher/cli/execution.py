"""Runs commands, and turns an error into one line on stderr and an exit code, without a traceback."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from typer.core import TyperGroup

from recordpublisher.publishers.errors import ConfigurationError, PluginError, RecordPublisherError
from recordpublisher.publishers.kinesis.error_mapping import NoCredentialsError
from recordpublisher.publishers.properties.properties import Properties, is_unknown
from recordpublisher.publishers.retry import call_with_retries, retry_listener
from recordpublisher.publishers.safe_text import notes_of, text_of
from recordpublisher.publishers.user_code import ForeignExitError, exits_as_errors, is_raised_in_user_code, raised_line

from ..plugins.runtime.stop_signals import WorkerFailedError
from ..publishers.properties.reading_properties import LIST_SHARDS_RETRIES, RECORD_PUBLISHER
from .output import logs_json, printable_line

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis.management import ManagementClient

log = logging.getLogger("recordpublisher.command")
FAILED = 1
BAD_CONFIGURATION = 2
ALARM = 3
PATIENCE_SECONDS = 5.0
NOTICE_SECONDS = 2.0
"""A command that retries for longer than this prints what it waits for (seconds)."""
LONGEST_LINE = 1_000
"""Most characters of an error's line. Messages of SDKs, proxies and databases can have thousands."""


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` and return its result, which the command prints.

    A signal cancels the work, and ends the command with the exit code 128 plus the signal's number, as in a shell. Then nothing is
    printed, because a part of the result would look like the whole.
    """
    result, number = asyncio.run(_run(work))
    if number is not None:
        raise typer.Exit(128 + number)
    return result  # type: ignore[return-value]


def subcommands(text: str) -> typer.Typer:
    """Return a group of commands below the main one. `text` is its help."""
    return typer.Typer(
        cls=Subcommands,
        help=text,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


class Subcommands(TyperGroup):
    """A group of commands below the main one. If a job is given instead of a command, its error says that the command comes first."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first argument names. Raises: UsageError, which lists the commands, if the argument is a job."""
        if args and self.get_command(ctx, args[0]) is None and any(sign in args[0] for sign in ".:/"):
            names = self.list_commands(ctx)
            ctx.fail(
                f"{args[0]!r} is not a command of {ctx.info_name}. Valid values: {', '.join(names)}. A job comes after the command: "
                f"{ctx.command_path} {names[0]} {args[0]}"
            )
        return super().resolve_command(ctx, args)


class CommandGroup(TyperGroup):
    """A group of commands that prints an error as one line."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command, and turn its error into a line and an exit code."""
        try:
            with exits_as_errors(is_import=False):
                result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # The reader of the output has ended, as `| head` does.
            _discard_stdout()
            raise typer.Exit(0) from None
        except (RecordPublisherError, ImportError, OSError, ForeignExitError) as error:
            if _is_debugging(ctx):
                raise
            is_list = isinstance(error, NoCredentialsError) and not logs_json()
            for line in str(error).splitlines() if is_list else [one_line(error)]:
                print_error(line)
            if isinstance(error, RecordPublisherError) and sys.stderr.isatty():
                typer.echo(f"See {error.help_page} in the documentation", err=True)
            raise typer.Exit(exit_code(error)) from None
        return result


@contextmanager
def errors_naming_options(*names: str, **renamed: str) -> Iterator[None]:
    """Let a ConfigurationError of the library name the command's option instead of the function's argument.

    - `names`: arguments whose options have the same name: `--port` for `port`.
    - `renamed`: the option of each other argument, as in `port="--other-port"`.
    """
    options = {name: f"--{name}" for name in names} | renamed
    try:
        yield
    except ConfigurationError as error:
        if error.key not in options:
            raise
        raise error.renamed(options[error.key]) from error


def exit_code(error: Exception) -> int:
    """Return the exit code for an error: 2 if the configuration must change, the worker's exit code for a WorkerFailedError, else 1."""
    if isinstance(error, WorkerFailedError):
        return error.exit_code
    if isinstance(error, ConfigurationError) and error.may_pass:
        return FAILED
    return BAD_CONFIGURATION if isinstance(error, (ConfigurationError, PluginError, ImportError)) else FAILED


def one_line(error: BaseException) -> str:
    """Return the message in one line.

    The line of an error that is not this package's begins with the error's class or its file, unless it says which extra to install.
    """
    of_file = error if isinstance(error, OSError) and error.filename is not None else None
    # A command shows no traceback of an OSError, so the line of the plugin's code is given here. Its note shows that it is of a plugin.
    is_of_plugin = isinstance(error, OSError) and is_raised_in_user_code(error, or_installed=bool(notes_of(error)))
    place = f"at {raised_line(error)}" if is_of_plugin else ""
    text = text_of(error) if of_file is None else f"{of_file.filename}: {of_file.strerror}"
    text = _shortened(" ".join("; ".join(filter(None, [text, *notes_of(error), place])).split()))
    if isinstance(error, RecordPublisherError) or (isinstance(error, ImportError) and "pip install" in text):
        return text
    return text if of_file else f"{type(error).__name__}: {text}"


def _shortened(text: str) -> str:
    """Return the text without its middle if it is too long. The end stays because it says what to do."""
    if len(text) <= LONGEST_LINE:
        return text
    return f"{text[: LONGEST_LINE // 2]} ... {text[-LONGEST_LINE // 2 :]}"


def print_error(line: str) -> None:
    """Print one line about an error on stderr."""
    _print_line(line, logging.ERROR)


def print_note(line: str) -> None:
    """Print one line on stderr about what the command does, which is not an error."""
    _print_line(line, logging.INFO)


def _print_line(line: str, level: int) -> None:
    """Print a line on stderr after the command's name, or with `--log-format json` as a log entry of this level."""
    if logs_json():
        log.log(level, "%s", line)
    else:
        typer.echo(f"recordpublisher: {printable_line(line)}", err=True)


def show_warnings_in_one_line() -> None:
    """Let Python print warnings without source line, and without file if our own code has caused them."""

    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any) -> None:
        is_nowhere = filename == "sys"  # Python names this module for a warning at its exit.
        place = "" if is_nowhere or filename.startswith(str(Path(__file__).parents[1])) else f" ({filename}:{lineno})"
        _print_line(f"warning: {message}{place}", logging.WARNING)

    warnings.showwarning = show


def _is_debugging(context: typer.Context) -> bool:
    return bool((context.obj or {}).get("debug"))


def _discard_stdout() -> None:
    """Redirect stdout to the null device, because its reader has gone.

    Otherwise the interpreter would report an error when it flushes stdout at exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


T = TypeVar("T")


def run_until_signal(work: Coroutine[Any, Any, T]) -> T | None:
    """Run `work`, which may never end by itself, and return its result.

    SIGINT (Ctrl-C) and SIGTERM cancel it, so that it can close what it opened. The result is then None, which is not an error. Later
    signals have no effect for `PATIENCE_SECONDS`, while the work closes. After that, a signal ends the process at once.
    """
    return asyncio.run(_run(work))[0]


class RetryNotice:
    """Prints once what a command waits for, if retries take long."""

    def __init__(self) -> None:
        self._said = False

    def __call__(self, error: Exception, waited: float, left: float) -> None:
        """Print the notice when a call has failed and retries take long.

        `waited`: the seconds of waiting, including the next pause. `left`: the most seconds for which the command may still wait.
        """
        if waited >= NOTICE_SECONDS and not self._said:
            self._said = True
            print_note(
                f"{_shortened(str(error))}; trying again, with pauses of up to {left:.0f} s in all (Ctrl-C ends the command)"
            )


async def _run(work: Coroutine[Any, Any, T]) -> tuple[T | None, int | None]:
    """Return the result of the work, or else the number of the signal that cancelled it."""
    retry_listener.set(RetryNotice())
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    received: list[tuple[float, int]] = []

    def cancel(number: int, _frame: object) -> None:
        received.append((loop.time(), number))
        if len(received) == 1:
            loop.call_soon_threadsafe(task.cancel)
        elif received[-1][0] - received[0][0] > PATIENCE_SECONDS:
            # Another cancellation may not help, because the loop, or a thread for which it waits, may be blocked by a write
            # into a pipe.
            os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Event loops of Windows have no signal handlers.
            # A handler of the loop is needed too, because it wakes the loop up. The loop removes it at its end.
            loop.add_signal_handler(number, lambda: None)
        signal.signal(number, cancel)
    await asyncio.wait([task])
    return (None, received[0][1]) if task.cancelled() else (task.result(), None)


def ask_service(
    properties: Properties, question: Callable[[ManagementClient], Awaitable[T]], stream: str | None = None
) -> T:
    """Return the result of `question`, which gets a client of the service and changes nothing.

    Failed calls are retried as the properties `flink.list.shards.*` say. Signals, `stream` and errors are as in `call_service`.
    """
    policy = LIST_SHARDS_RETRIES.policy(properties)
    return call_service(properties, lambda service: call_with_retries(lambda: question(service), policy), stream)


def call_service(
    properties: Properties, work: Callable[[ManagementClient], Awaitable[T]], stream: str | None = None
) -> T:
    """Return the result of `work`, which gets a client of the service.

    Calls are not retried: if the response to a change is lost, a second attempt would fail. A signal ends the command without a result. The
    region may come from `stream` if that is an ARN.

    Raises: ConfigurationError if a property is invalid; the errors of `work`.
    """

    async def call() -> T:
        # Imported here because it loads the AWS SDK.
        from recordpublisher.publishers.kinesis.management import ManagementClient

        async with ManagementClient(properties, [] if stream is None else [stream]) as client:
            return await work(client)

    all_imported = True
    if any(map(is_unknown, properties)):  # The plugins that the properties name may declare these keys.
        from ..plugins.host.plugin_loading import load_registry  # Imported here because it loads pluggy.

        all_imported = not load_registry().import_chosen(properties)
    properties.check(all_imported=all_imported)
    _refuse_streams_of_plugins(properties)
    return run_to_end(call())


def _refuse_streams_of_plugins(properties: Properties) -> None:
    """Check that the job reads streams of Kinesis. Otherwise the command would use a stream of Kinesis with the same name.

    Raises: ConfigurationError if the properties name a queue, or a publisher that lists its streams itself.
    """
    if not properties.is_set(RECORD_PUBLISHER):
        return
    from ..plugins.host.build_from_properties import (
        why_not_in_kinesis,  # Imported here because it loads pluggy.
    )

    if why := why_not_in_kinesis(properties, "this command works only with streams of Kinesis"):
        raise ConfigurationError(
            RECORD_PUBLISHER.key, properties.as_given(RECORD_PUBLISHER), "POLLING or EFO", reason=why
        )
