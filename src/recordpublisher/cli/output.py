"""Prints and formats the output of commands: tables, colours, times, rates and JSON. Formats log lines.

Control characters in data never reach a terminal.
"""

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from textwrap import indent
from typing import Annotated, Any

import msgspec
import typer
from typer.main import get_command

from ..publishers.log_fields import fields_of
from ..publishers.safe_text import repr_of

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters except tab and newline, characters that change the direction of text or end a line, and halves of characters."""
_IN_JSON = re.compile(b"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]|\xef\xbb\xbf")
"""The characters of `_CONTROLS` in UTF-8, except the ones that JSON always escapes."""


def echo(text: str) -> None:
    """Print text on stdout, with control characters as escapes, and a newline."""
    typer.echo(printable(text))


class SafeText(str):
    """Text without control characters, except those of the colours that commands use."""

    __slots__ = ()


def printable(text: str) -> SafeText:
    """Return the text with control characters as escapes: `\\x1b`, `\\u202e`."""
    return text if isinstance(text, SafeText) else SafeText(_CONTROLS.sub(_escaped, text))


def printable_line(text: str) -> SafeText:
    """Return the text in one line, with control characters and line ends as escapes."""
    return SafeText(printable(text).replace("\n", "\\n"))


def escape_controls_in_json(line: bytes) -> bytes:
    """Return JSON with control characters as JSON's own escapes. Its meaning does not change."""
    return _IN_JSON.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), line)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def styled(text: str, colour: str | None = None, bold: bool = False) -> SafeText:
    """Return text with a style. `echo` omits the style if stdout is not a terminal. `NO_COLOR` omits it everywhere."""
    plain = printable(text)
    return plain if os.environ.get("NO_COLOR") else SafeText(typer.style(plain, fg=colour, bold=bold or None))


def joined(lines: Iterable[str]) -> SafeText:
    """Return the lines as one text, with control characters as escapes."""
    return SafeText("\n".join(map(printable, lines)))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> SafeText:
    """Return a bold head and one line for each row, with aligned columns."""
    first, *others = aligned([head, *rows])
    return joined([styled(first, bold=True), *others])


def aligned(rows: Sequence[Sequence[str]]) -> list[SafeText]:
    """Return a line for each row, with aligned columns. Line breaks in a cell are escaped."""
    rows = [[cell if isinstance(cell, SafeText) else printable_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        SafeText("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()) for row in rows
    ]


def time_text(time: datetime) -> str:
    """Return a time in UTC, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration(ms: int | None) -> str:
    """Return a duration in the largest unit that fits, with one decimal, such as `4.2 h`, or `-` if it is not known."""
    if ms is None:
        return "-"
    for name, size in UNITS:
        if abs(ms) >= size:
            return f"{ms / size:.1f} {name}"
    return "0 s" if ms == 0 else f"{ms} ms"


def rate(per_second: float | None) -> str:
    """Return a rate with separated thousands, with two significant digits if it is below 10, or `-` if it is not known."""
    return "-" if per_second is None else f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"


def yes_no(flag: bool | None) -> str:
    """Return `yes` or `no`, or `-` if it is not known."""
    return "-" if flag is None else "yes" if flag else "no"


def json_text(fields: Mapping[str, Any] | msgspec.Struct) -> SafeText:
    """Return a JSON object in one line. A name such as `max_record_bytes` becomes `maxRecordBytes`."""
    named = {_camel(name): value for name, value in fields.items()} if isinstance(fields, Mapping) else fields
    return SafeText(escape_controls_in_json(msgspec.json.encode(named)).decode())


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


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
    """Formats each log entry as one JSON object: time, level, logger, message, extra fields, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a log entry."""
        entry = {
            **_extra_of(record),
            "time": _time_text(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


_OF_EVERY_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


def _extra_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what a log call of the user has given as `extra`, each value as JSON can have it."""
    extra = {}
    for name in vars(record).keys() - _OF_EVERY_RECORD:
        value = getattr(record, name)
        if name == "fields" and isinstance(value, Mapping):
            continue  # These are the fields of the library's own lines.
        try:
            json.dumps(value, default=str, allow_nan=False)
        except Exception:
            # A value that refers to itself, NaN, keys that JSON cannot have, or a `__str__` of the user that fails.
            value = repr_of(value, None)
        extra[name] = value
    return extra


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
    """Set the library's log level. The options of the group and of its command add up, because both are kept in `context.obj`."""
    given = context.obj
    given["verbose"] |= verbose
    given["debug"] |= debug
    level = logging.DEBUG if given["debug"] else logging.INFO if given["verbose"] else logging.WARNING
    logging.getLogger("recordpublisher").setLevel(level)
    logging.getLogger("recordpublisher.command").setLevel(min(level, logging.INFO))


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
