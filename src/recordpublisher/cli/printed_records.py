"""The records that `tail` prints: which, and as which JSON."""

import re
from typing import Any

import msgspec

from recordpublisher.plugins.sinks.files.jsonl import as_json
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.records import Record

from .output import printable_json


def pattern(option: str, given: str | None) -> re.Pattern[str] | None:
    """A regular expression. Raises: ConfigurationError that names the option."""
    try:
        return None if given is None else re.compile(given)
    except re.error as error:
        raise ConfigurationError(option, given, "a regular expression of Python", reason=str(error)) from error


def is_chosen(record: Record, key: re.Pattern[str] | None, content: re.Pattern[str] | None) -> bool:
    """Whether the partition key and the payload, as text, contain a match of the patterns."""
    return (key is None or key.search(record.partition_key or "") is not None) and (
        content is None or content.search(record.data.decode(errors="replace")) is not None
    )


def json_line(record: Record) -> bytes:
    """One line of JSON. A payload that is a JSON object or array is part of it as it is, not as text."""
    fields: dict[str, Any] = as_json(record)
    if record.data.lstrip()[:1] in (b"{", b"["):
        try:
            msgspec.json.decode(record.data)
            fields["data"] = msgspec.Raw(msgspec.json.format(record.data, indent=-1))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # no JSON: it stays text
    return printable_json(msgspec.json.encode(fields)) + b"\n"
