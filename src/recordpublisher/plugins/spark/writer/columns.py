"""Finds and checks the columns of a DataFrame before anything is written (C2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from recordpublisher.publishers.errors import ConfigurationError

TEXT = ("string", "varchar", "char")
VALID = {"data": ("binary", *TEXT), "partitionKey": TEXT, "explicitHashKey": TEXT, "stream": TEXT}
"""Column names, and the Spark types that each may have."""


class ColumnError(ConfigurationError):
    """A DataFrame cannot be written. The message names the column, the problem, and what is valid.

    - `given`: the type of the column, or None if it is missing.
    """

    def __init__(self, column: str, given: str | None, valid: str, *, reason: str = "") -> None:
        super().__init__(column, given, valid)
        fact = reason or ("is missing" if given is None else f"has the type {given}")
        self.args = (f"column '{column}' {fact}. Valid: {valid}",)


@dataclass(frozen=True, slots=True)
class WriteColumns:
    """The index of each column, or None if there is no such column."""

    data: int
    partition_key: int | None = None
    explicit_hash_key: int | None = None
    stream: int | None = None


def columns_of(fields: Sequence[tuple[str, str]], stream: str | None) -> WriteColumns:
    """Find the columns among pairs of name and Spark type. Other columns are ignored. The option `stream` overrides the column.

    Raises: ColumnError if a column is missing, misspelt or of another type.
    """
    _reject_near_misses([name for name, _ in fields])
    places = {name: _place_of(name, fields) for name in VALID}
    data = places["data"]
    if data is None:
        raise ColumnError("data", None, f"BINARY or STRING, the payload of each record; given: {_listed(fields)}")
    if stream is None and places["stream"] is None:
        raise ColumnError("stream", None, "STRING, the target of each row; or set the option 'stream' for all of them")
    of_column = places["stream"] if stream is None else None
    return WriteColumns(data, places["partitionKey"], places["explicitHashKey"], of_column)


def data_of(column: Any) -> list[Any]:
    """Return the payloads of an Arrow column. Text is UTF-8; null is None."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return list(column.to_pylist())


def _place_of(name: str, fields: Sequence[tuple[str, str]]) -> int | None:
    """Return the index of a column, or None. Case is ignored, as in Spark. Raises: ColumnError if it exists twice, or has another type."""
    found = [place for place, (given, _) in enumerate(fields) if given.lower() == name.lower()]
    if not found:
        return None
    if len(found) > 1:
        given = " and ".join(fields[place][0] for place in found)
        raise ColumnError(name, given, "one column of that name", reason=f"is there twice, as {given}")
    given_type = fields[found[0]][1]
    if given_type.partition("(")[0].split()[0] not in VALID[name]:
        raise ColumnError(
            name, given_type.upper(), " or ".join(kind.upper() for kind in VALID[name][:2] if kind != "varchar")
        )
    return found[0]


def _reject_near_misses(names: Sequence[str]) -> None:
    """Refuse misspelt names. A column `partition_key` would be ignored like any other, and every row would get a random key.

    Raises: ColumnError if a name is misspelt.
    """
    meant = {name.lower(): name for name in VALID}
    for given in names:
        plain = given.replace("_", "").replace("-", "").lower()
        if plain in meant and given.lower() != plain:
            valid = f"'{meant[plain]}', if that is meant; otherwise leave the column out"
            raise ColumnError(given, given, valid, reason="would be left out")


def _listed(fields: Sequence[tuple[str, str]]) -> str:
    return ", ".join(name for name, _ in fields) or "none"
