"""LOG_OPTIONS: the options of every command that say what is written to stderr: --verbose, --debug, --log-format."""

from __future__ import annotations

from typing import Any

import typer
from typer.main import get_command

from .log_format import LogFormat, LogFormatOption, logs_json
from .verbosity import Debug, Verbose


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
