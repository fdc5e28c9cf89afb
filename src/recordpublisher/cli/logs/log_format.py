"""The option --log-format: whether lines on stderr are text or JSON objects."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from enum import StrEnum
from textwrap import indent
from typing import Annotated

import typer

from recordpublisher.publishers.log_fields import fields_of

from ..printable import printable, printable_line


class LogFormat(StrEnum):
    """The format of lines on stderr."""

    TEXT = "text"
    JSON = "json"


class TextLines(logging.Formatter):
    """Formats each log entry as one line, control characters as escapes; a traceback follows, indented, so that it looks like no line."""

    def __init__(self, has_head: bool = True) -> None:
        """`has_head`: with time (UTC), level and logger, which rich shows by itself."""
        super().__init__()
        self._has_head = has_head

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        text: str = printable_line(record.getMessage())
        if self._has_head:
            text = f"{_time_text(record)} {record.levelname} {record.name}: {text}"
        if record.exc_info:
            text += f"\n{indent(printable(self.formatException(record.exc_info)), '  ')}"
        return text


class JsonLines(logging.Formatter):
    """Formats each log entry as one JSON object: time, level, logger, message, what it is about, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
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
    """Whether the lines of this process are JSON objects."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


def _set_format(given: LogFormat) -> LogFormat:
    if given is LogFormat.JSON:
        logging.getLogger().handlers[0].setFormatter(JsonLines())
    return given


LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="Format of the lines on stderr.", callback=_set_format)
]
