"""Builds the Python types that schemas are turned into. Decoding, checks and columns follow from them as from a class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from keyword import iskeyword
from types import GenericAlias
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import msgspec

from recordpublisher.consumer.typed_values import COLUMN, decimal_digits, exact_decimal

ROW = "row of the schema"
"""The name of the type in messages: `it is no row of the schema: $.id: expected int, got str`."""


def _whole(bits: int, column: str | None = None) -> Any:
    least, extra = -(2 ** (bits - 1)), column and {COLUMN: column}
    return Annotated[int, msgspec.Meta(ge=least, le=-least - 1, extra=extra or None)]


PLAIN: dict[str, Any] = {
    "BOOLEAN": bool,
    "TINYINT": _whole(8, "TINYINT"),
    "SMALLINT": _whole(16, "SMALLINT"),
    "INT": _whole(32, "INT"),
    "BIGINT": _whole(64),
    "FLOAT": Annotated[float, msgspec.Meta(extra={COLUMN: "FLOAT"})],
    "DOUBLE": float,
    "STRING": str,
    "BINARY": bytes,
    "DATE": date,
    "TIMESTAMP": datetime,
    "TIME": time,
    "UUID": UUID,
}
"""The types without parts, by their names in Spark. TIME and UUID are names in databases."""


class SchemaField(NamedTuple):
    """One field of an object: its name in JSON, its type in Python, and whether a value must be there."""

    name: str
    type: Any
    is_required: bool = False


def decimal_type(precision: int, scale: int) -> Any:
    """Return the type of DECIMAL(precision, scale). Raises: ValueError if no table can have such a column."""
    column = f"DECIMAL({precision}, {scale})"
    decimal_digits(column)
    return Annotated[Decimal, msgspec.Meta(extra={COLUMN: column})]


def list_of(item: Any) -> Any:
    """Return the type of lists, whose items may be null."""
    return GenericAlias(list, (item | None,))


def map_of(key: Any, item: Any) -> Any:
    """Return the type of maps, whose values may be null."""
    return GenericAlias(dict, (key, item | None))


def object_type(fields: Sequence[SchemaField], name: str = ROW) -> type[msgspec.Struct]:
    """Return a Struct with these fields. A field that is not required may be null, or missing.

    A field whose name is not valid in Python becomes an attribute `field_1`, `field_2` and so on, by its place.

    Raises: ValueError if there is no field, or if two have one name.
    """
    if not fields:
        raise ValueError("an object without fields cannot be a column")
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            raise ValueError(f"the field {field.name!r} is there twice")
        seen.add(field.name)
    names = {field.name: _attribute(field.name, place, seen) for place, field in enumerate(fields, 1)}
    declared: list[Any] = [
        (names[field.name], field.type) if field.is_required else (names[field.name], field.type | None, None)
        for field in fields
    ]
    checked = {names[field.name]: _digits_of(field.type) for field in fields if _digits_of(field.type)}
    renamed = {attribute: name for name, attribute in names.items() if attribute != name}
    namespace = {"__post_init__": _check_of(checked)} if checked else None
    return msgspec.defstruct(name, declared, kw_only=True, rename=renamed or None, namespace=namespace)


def _attribute(name: str, place: int, names: set[str]) -> str:
    if name.isidentifier() and not iskeyword(name) and not name.startswith("__"):
        return name
    attribute = f"field_{place}"
    while attribute in names:
        attribute += "_"
    return attribute


def _digits_of(of: Any) -> tuple[int, int] | None:
    marks = [mark for mark in getattr(of, "__metadata__", ()) if isinstance(mark, msgspec.Meta)]
    return decimal_digits((marks[0].extra or {}).get(COLUMN, "")) if marks else None


def _check_of(digits: dict[str, Any]) -> Callable[[Any], None]:
    """Return a check of decimals, so that each sink gets numbers that fit.

    Without it, PostgreSQL would round a number that does not fit, and a sink of JSON lines would write it unchanged.
    """

    exact = {name: (of, exact_decimal(*of)) for name, of in digits.items()}

    def check(row: Any) -> None:
        for name, (of, convert) in exact.items():
            if (value := getattr(row, name)) is not None:
                try:
                    convert(value)
                except ValueError as error:
                    raise ValueError(f"the field '{name}' is DECIMAL{of}, and {error}") from error

    return check
