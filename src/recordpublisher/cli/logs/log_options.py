"""LOG_OPTIONS: the options of every command that say what is written to stderr: --verbose, --debug, --log-format."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.main import get_command

from .log_format import LogFormat, LogFormatOption, logs_json


def set_verbosity(context: typer.Context, verbose: bool = False, debug: bool = False) -> None:
    """Note an option in `context.obj`, which the group and its command share, and set the library's log level."""
    given = context.obj
    given["verbose"] |= verbose
    given["debug"] |= debug
    level = logging.DEBUG if given["debug"] else logging.INFO if given["verbose"] else logging.WARNING
    logging.getLogger("recordpublisher").setLevel(level)


def _setter(name: str) -> Callable[[typer.Context, bool], bool]:
    def set_option(context: typer.Context, given: bool) -> bool:
        set_verbosity(context, **{name: given})
        return given

    return set_option


VERBOSE_HELP = "Show on stderr what happens."
DEBUG_HELP = "Show tracebacks, and every log line of this package."
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help=VERBOSE_HELP, callback=_setter("verbose"))]
Debug = Annotated[bool, typer.Option("--debug", help=DEBUG_HELP, callback=_setter("debug"))]


def _declare(verbose: Verbose = False, debug: Debug = False, log_format: LogFormatOption = LogFormat.TEXT) -> None:
    """Has the options. Their callbacks do what they mean, so no command sees their values."""


def given_log_options(context: typer.Context) -> list[str]:
    """Those that were given to this command, for a process of its own."""
    verbosity = [option for option, name in (("-v", "verbose"), ("--debug", "debug")) if context.obj[name]]
    return ["--log-format", LogFormat.JSON, *verbosity] if logs_json() else verbosity


def _options() -> list[Any]:
    holder = typer.Typer(add_completion=False)
    holder.command()(_declare)
    options = get_command(holder).params
    for each in options:
        each.expose_value = False
    return options


LOG_OPTIONS = _options()
