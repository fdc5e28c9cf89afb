"""Reads the column type that a field names: `Annotated[Decimal, msgspec.Meta(extra={"column": "DECIMAL(12, 2)"})]`."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any

from msgspec import inspect

COLUMN = "column"
"""The key of the column type in `msgspec.Meta.extra`."""
MOST_DIGITS = 38
"""Most digits of a decimal in Spark, Arrow, Delta Lake and Iceberg."""
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def column_type(info: Any) -> str | None:
    """Return the column type that a field names, in upper case; None if it names none. `info` is from `msgspec.inspect`."""
    if isinstance(info, inspect.UnionType):
        kinds = [kind for kind in info.types if not isinstance(kind, inspect.NoneType)]
        return column_type(kinds[0]) if len(kinds) == 1 else None
    if not isinstance(info, inspect.Metadata):
        return None
    named = (info.extra or {}).get(COLUMN)
    return column_type(info.type) if named is None else str(named).upper()


def decimal_digits(column: str) -> tuple[int, int] | None:
    """Return precision and scale of a type such as `DECIMAL(12, 2)`; None for another type.

    Raises: ValueError if no table can have a column with them.
    """
    if (found := _DECIMAL.fullmatch(column)) is None:
        return None
    precision, scale = int(found[1]), int(found[2] or 0)
    if not 1 <= precision <= MOST_DIGITS or scale > precision:
        raise ValueError(
            f"{column} is not DECIMAL(precision, scale) with 1 to {MOST_DIGITS} digits, and no more after the point"
        )
    return precision, scale


def exact_decimal(precision: int, scale: int) -> Callable[[Decimal], Decimal]:
    """Return a function that gives a number `scale` digits after the point.

    The function raises ValueError if it would have to round the number, or if the number is not finite.
    """
    digits = Context(prec=precision, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[InvalidOperation, Inexact])
    last_digit = Decimal(1).scaleb(-scale)

    def exact(value: Decimal) -> Decimal:
        try:
            fixed = value.quantize(last_digit, context=digits)
        except DecimalException as error:
            most = f"{precision - scale} digits before the point, or {scale} after it"
            raise ValueError(f"{value!s:.100} has more than {most}") from error
        if not fixed.is_finite():
            raise ValueError(f"{fixed} is not a finite number")
        return fixed

    return exact
