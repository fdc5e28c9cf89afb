"""The option --log-format: whether lines on stderr are text or JSON objects."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from recordpublisher.publishers.log_fields import fields_of


class LogFormat(StrEnum):
    """The format of lines on stderr."""

    TEXT = "text"
    JSON = "json"


class JsonLines(logging.Formatter):
    """Formats each log entry as one JSON object: time, level, logger, message, what it is about, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        entry = {
            "time": datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


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
