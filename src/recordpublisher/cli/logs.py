"""The log options of every command: how much it writes to stderr (--verbose, --debug), and whether as text or JSON (--log-format)."""

import json
import logging
from datetime import UTC, datetime
from enum import StrEnum
from textwrap import indent
from typing import Annotated, Any

import typer
from typer.main import get_command

from recordpublisher.publishers.log_fields import fields_of

from .output import printable, printable_line


class LogFormat(StrEnum):
    """The format of lines on stderr."""

    TEXT = "text"
    JSON = "json"


class TextLines(logging.Formatter):
    """Formats each log entry as one line, with control characters as escapes.

    A traceback follows. It is indented so that none of its lines looks like a log entry.
    """

    def __init__(self, has_head: bool = True) -> None:
        """Choose the format.

        - `has_head`: whether a line begins with time (UTC), level and logger. The library rich shows these itself.
        """
        super().__init__()
        self._has_head = has_head

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a log entry."""
        text: str = printable_line(record.getMessage())
        if self._has_head:
            text = f"{_time_text(record)} {record.levelname} {record.name}: {text}"
        fields = fields_of(record)
        text += "".join(f" {name}={fields[name]}" for name in ("trace_id", "span_id") if name in fields)
        if record.exc_info:
            text += f"\n{indent(printable(self.formatException(record.exc_info)), '  ')}"
        return text


class JsonLines(logging.Formatter):
    """Formats each log entry as one JSON object: time, level, logger, message, its own fields, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a log entry."""
        entry = {
            "time": _time_text(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def _time_text(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds")


def logs_json() -> bool:
    """Return whether the log lines of this process are JSON objects."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


def _set_format(given: LogFormat) -> LogFormat:
    if given is LogFormat.JSON:
        logging.getLogger().handlers[0].setFormatter(JsonLines())
    return given


LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="Format of the lines on stderr.", callback=_set_format)
]


def set_verbosity(context: typer.Context, verbose: bool = False, debug: bool = False) -> None:
    """Store an option in `context.obj`, which the group and its command share, and set the library's log level."""
    given = context.obj
    given["verbose"] |= verbose
    given["debug"] |= debug
    level = logging.DEBUG if given["debug"] else logging.INFO if given["verbose"] else logging.WARNING
    logging.getLogger("recordpublisher").setLevel(level)


VERBOSE_HELP = "Show on stderr what the command does."
DEBUG_HELP = "Show tracebacks, and every log line of this package."
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help=VERBOSE_HELP, callback=lambda context, given: set_verbosity(context, verbose=given)
    ),
]
Debug = Annotated[
    bool, typer.Option("--debug", help=DEBUG_HELP, callback=lambda context, given: set_verbosity(context, debug=given))
]


def _declare(verbose: Verbose = False, debug: Debug = False, log_format: LogFormatOption = LogFormat.TEXT) -> None:
    """Declare the log options. Their callbacks apply them, so commands do not receive their values."""


def given_log_options(context: typer.Context) -> list[str]:
    """Return the log options that this command was given, to pass them to a process that it starts."""
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
