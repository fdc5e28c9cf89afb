"""What commands print on stdout: aligned columns, colours, times, rates and JSON."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import typer

from .printable import Printable, printable, printable_json, printable_line

UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def echo(text: str) -> None:
    """Print text on stdout, with control characters as escapes, and a newline."""
    typer.echo(printable(text))


def styled(text: str, colour: str | None = None, bold: bool = False) -> Printable:
    """Text for `echo`, which leaves the style out where stdout is no terminal. `NO_COLOR` leaves it out everywhere."""
    plain = printable(text)
    return plain if os.environ.get("NO_COLOR") else Printable(typer.style(plain, fg=colour, bold=bold or None))


def joined(lines: Iterable[str]) -> Printable:
    """The lines as one text, each printable."""
    return Printable("\n".join(map(printable, lines)))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Printable:
    """A bold head and one line for each row, columns aligned."""
    first, *others = aligned([head, *rows])
    return joined([styled(first, bold=True), *others])


def aligned(rows: Sequence[Sequence[str]]) -> list[Printable]:
    """A line for each row, columns aligned; a cell is one line."""
    rows = [[cell if isinstance(cell, Printable) else printable_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        Printable("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        for row in rows
    ]


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


def json_text(fields: Mapping[str, Any] | msgspec.Struct) -> Printable:
    """One JSON object in one line; `max_record_bytes` becomes `maxRecordBytes`."""
    named = {_camel(name): value for name, value in fields.items()} if isinstance(fields, Mapping) else fields
    return Printable(printable_json(msgspec.json.encode(named)).decode())


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
