"""What commands print on stdout: aligned columns, times and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """The rows with their columns aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def time_text(time: datetime) -> str:
    """A time in UTC, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def json_text(fields: Mapping[str, Any]) -> str:
    """One JSON object in one line; `max_record_bytes` becomes `maxRecordBytes`."""
    return msgspec.json.encode({_camel(name): value for name, value in fields.items()}).decode()


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
