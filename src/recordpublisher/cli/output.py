"""What commands print on stdout: aligned columns, colours, times, rates and JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import typer

UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def styled(text: str, colour: str | None = None, bold: bool = False) -> str:
    """Text for `typer.echo`, which leaves the style out where stdout is no terminal. `NO_COLOR` leaves it out everywhere."""
    return text if os.environ.get("NO_COLOR") else typer.style(text, fg=colour, bold=bold or None)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A bold head and one line for each row, columns aligned."""
    first, *others = aligned([head, *rows]).split("\n")
    return "\n".join([styled(first, bold=True), *others])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """The rows with their columns aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def time_text(time: datetime) -> str:
    """A time in UTC, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration(ms: int | None) -> str:
    """The largest unit that fits, with one decimal: `4.2 h`."""
    if ms is None:
        return "-"
    for name, size in UNITS:
        if abs(ms) >= size:
            return f"{ms / size:.1f} {name}"
    return "0" if ms == 0 else f"{ms} ms"


def rate(per_second: float | None) -> str:
    """A rate with thousands separated, below 10 with two digits; - where it is not known."""
    return "-" if per_second is None else f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"


def yes_no(flag: bool | None) -> str:
    """`yes`, `no`, or - where it is not known."""
    return "-" if flag is None else "yes" if flag else "no"


def json_text(fields: Mapping[str, Any]) -> str:
    """One JSON object in one line; `max_record_bytes` becomes `maxRecordBytes`."""
    return msgspec.json.encode({_camel(name): value for name, value in fields.items()}).decode()


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
