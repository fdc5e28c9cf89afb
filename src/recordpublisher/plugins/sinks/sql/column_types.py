"""Chooses a column type for each field of values, from a class or from JSON objects, and converts values to column types."""

import json
import math
import uuid
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache, partial
from itertools import chain
from types import NoneType
from typing import Any
from uuid import UUID

from msgspec import inspect
from sqlalchemy import (
    REAL,
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    Double,
    Integer,
    LargeBinary,
    Numeric,
    SmallInteger,
    Text,
    Time,
    Uuid,
    types,
)
from sqlalchemy.dialects.postgresql import JSONB

from recordpublisher.consumer.typed_values import (
    column_type,
    constants_of,
    decimal_digits,
    exact_decimal_converter,
    fields_of,
    has_fields,
    type_info,
    type_without_none,
)
from recordpublisher.publishers.safe_text import repr_of

FieldColumns = dict[str, types.TypeEngine[Any]]
"""The type of the column for each field."""
JSON_COLUMN = types.JSON().with_variant(JSONB(), "postgresql")
_OF_TYPE: dict[type[Any], types.TypeEngine[Any]] = {
    inspect.BoolType: Boolean(),
    inspect.IntType: BigInteger(),
    inspect.FloatType: Double(),
    inspect.StrType: Text(),
    inspect.BytesType: LargeBinary(),
    inspect.DateTimeType: DateTime(timezone=True),
    inspect.DateType: Date(),
    inspect.TimeType: Time(),
    inspect.TimeDeltaType: Text(),
    inspect.DecimalType: Numeric().with_variant(Text(), "sqlite"),
    inspect.UUIDType: Uuid().with_variant(Text(), "sqlite"),
}
_OF_CLASS: dict[type[Any], types.TypeEngine[Any]] = {
    bool: Boolean(),
    int: BigInteger(),
    float: Double(),
    str: Text(),
    bytes: LargeBinary(),
    datetime: DateTime(timezone=True),
    date: Date(),
    Decimal: _OF_TYPE[inspect.DecimalType],
    UUID: _OF_TYPE[inspect.UUIDType],
}
"""The column types by the class of a value. JSON has values of the first four classes, Avro of all these classes."""


@cache
def columns_of_type(of: Any) -> FieldColumns:
    """Return the column type of each field of the type `of`; empty if it has no fields."""
    return {field.name: _of_type(field.type) for field in fields_of(type_info(of)) or ()}


@cache
def bytes_getters_of(of: Any) -> dict[str, Callable[[Any], Any]]:
    """Return for each field of bytes a function that gets the bytes from a value. The value's JSON form has only their base64."""
    fields = fields_of(type_info(of)) or ()
    return {field.name: field.take for field in fields if isinstance(type_without_none(field.type), inspect.BytesType)}


def columns_of_values(values: Sequence[Any], known: Collection[str]) -> FieldColumns:
    """Return the column types of the fields that are not in `known`. A field of JSON objects that is always null has no type yet."""
    columns: FieldColumns = {}
    for of in dict.fromkeys(map(type, values)):
        columns |= columns_of_type(of) if has_fields(of) else {}
    objects = [value for value in values if isinstance(value, dict)]
    for name in dict.fromkeys(chain.from_iterable(objects)):
        if name not in known and (kinds := {type(entries.get(name)) for entries in objects} - {NoneType}):
            columns.setdefault(name, _of_kinds(kinds))
    return {name: column for name, column in columns.items() if name not in known}


def can_be_widened_to(there: types.TypeEngine[Any], wanted: types.TypeEngine[Any]) -> bool:
    """Return whether a column of the type `wanted` holds every value of a column of the type `there`, and more."""
    if isinstance(there, Integer) and isinstance(wanted, Integer):
        return _bits(there) < _bits(wanted)
    if isinstance(there, types.Float) or isinstance(wanted, types.Float):
        return isinstance(there, REAL) and isinstance(wanted, Double)
    if not isinstance(there, Numeric) or not isinstance(wanted, Numeric):
        return False
    if there.precision is None or wanted.precision is None:
        return there.precision is not None
    digits = wanted.precision - (wanted.scale or 0) - there.precision + (there.scale or 0)
    decimals = (wanted.scale or 0) - (there.scale or 0)
    return min(digits, decimals) >= 0 < max(digits, decimals)


def _bits(of: types.TypeEngine[Any]) -> int:
    return 64 if isinstance(of, BigInteger) else 16 if isinstance(of, SmallInteger) else 32


_NAMED: dict[str, types.TypeEngine[Any]] = {
    "TINYINT": SmallInteger(),
    "SMALLINT": SmallInteger(),
    "INT": Integer(),
    "FLOAT": REAL(),
}


def _of_type(info: Any) -> types.TypeEngine[Any]:
    named, info = column_type(info) or "", type_without_none(info)
    if isinstance(info, inspect.DecimalType) and (digits := decimal_digits(named)):
        return Numeric(*digits).with_variant(Text(), "sqlite")
    if named in _NAMED:
        return _NAMED[named]
    constants = constants_of(info)
    return _OF_TYPE.get(type(info), JSON_COLUMN) if constants is None else _of_kinds(set(map(type, constants)))


def _of_kinds(kinds: set[type[Any]]) -> types.TypeEngine[Any]:
    """Return the column type for values of these classes. It is JSON if no other type holds them all."""
    if kinds == {int, float}:
        return _OF_CLASS[float]
    return _OF_CLASS.get(next(iter(kinds)), JSON_COLUMN) if len(kinds) == 1 else JSON_COLUMN


# --- conversions ----------------------------------------------------------------------------------------------------------------

Convert = Callable[[Any], Any]
_DIGITS_OF_A_SECOND = 6
"""Digits of a second's fraction in every time."""
_MOST_DIGITS = 20
"""One digit more than the longest BIGINT has."""


def conversion_of(column_type: types.TypeEngine[Any], declared: types.TypeEngine[Any] | None = None) -> Convert:
    """Return the conversion from a JSON value to this column type.

    The conversion raises one of the errors in `UNCONVERTIBLE` if a value does not fit.

    `declared`: the type that the field declares. A number with more digits than this type is refused, because PostgreSQL would round it.
    """
    if isinstance(declared, types.Numeric) and (check := _check_of(declared, column_type)) is not None:
        return partial(_exact, check, conversion_of(column_type))
    if isinstance(column_type, types.ARRAY):
        return partial(_array, conversion_of(column_type.item_type))
    if isinstance(column_type, types.DateTime):
        return partial(_timestamp, has_zone=bool(column_type.timezone))
    if isinstance(column_type, types.Time):
        return partial(_time_of_day, has_zone=bool(column_type.timezone))
    for kind, convert in _CONVERSIONS:
        if isinstance(column_type, kind):
            return convert
    return _nested_as_json


def _check_of(declared: types.Numeric[Any], column_type: types.TypeEngine[Any]) -> Convert | None:
    if declared.precision is not None and declared.scale is not None:
        return exact_decimal_converter(declared.precision, declared.scale)
    # The text in which SQLite keeps a decimal must not be one that a numeric column refuses.
    return _decimal if isinstance(column_type, types.Text) else None


def is_same_decimal(column_type: types.TypeEngine[Any], declared: types.TypeEngine[Any] | None) -> bool:
    """Return whether a column has as many digits after the point as its field declares, so that it rounds nothing."""
    if not isinstance(column_type, types.Numeric) or not isinstance(declared, types.Numeric):
        return False
    return declared.scale is not None and column_type.scale == declared.scale


def lost_by(column_type: types.TypeEngine[Any], dialect: str) -> str:
    """Return which part of a value a column of this type loses without an error; an empty text if it loses nothing."""
    if isinstance(column_type, types.ARRAY):
        return lost_by(column_type.item_type, dialect)
    if isinstance(column_type, types.Float):
        return (
            "digits after about the seventh" if dialect == "postgresql" and isinstance(column_type, types.REAL) else ""
        )
    if isinstance(column_type, types.Numeric):
        if dialect == "sqlite":
            return "digits after about the fifteenth"
        return "" if column_type.scale is None else f"digits after the first {column_type.scale} of a fraction"
    digits = getattr(column_type, "precision", None)
    if isinstance(column_type, (types.DateTime, types.Time)) and digits is not None and digits < _DIGITS_OF_A_SECOND:
        return f"digits after the first {digits} of a second's fraction"
    return ""


def why_rejected(column: Column[Any], value: Any) -> str:
    """Return why a row is rejected, with the column, its type and at most 100 characters of the value."""
    return f"column '{column.name}' ({str(column.type).lower()}) cannot take {repr_of(value)}"


def _exact(exact: Convert, convert: Convert, value: Any) -> Any:
    if value is not None:
        exact(Decimal(str(value)))
    return convert(value)


def _array(convert: Convert, value: Any) -> Any:
    if value is not None and not isinstance(value, list):
        raise TypeError(f"a value of the type {type(value).__name__} is not an array")
    return (
        None
        if value is None
        else [_array(convert, item) if isinstance(item, list) else convert(item) for item in value]
    )


def _nested_as_json(value: Any) -> Any:
    """Return objects and lists as JSON text, and other values as they are. Raises: ValueError if NaN or infinity is inside."""
    return json.dumps(value, allow_nan=False) if isinstance(value, (dict, list)) else value


def _json(value: Any) -> Any:
    """Check that JSON can represent a value, and return the value. Raises: ValueError for NaN and infinity, which SQLite would store."""
    if isinstance(value, (float, dict, list)):
        json.dumps(value, allow_nan=False, default=str)
    return value


def _number(value: Any) -> Any:
    """Return the value if it can be a number.

    SQLite would store other values too, in a column of any type, and Python reads `1_0` and the digits of other scripts as numbers.

    Raises: TypeError for a boolean, an object, a list or bytes; ValueError for a text with `_` or with characters outside ASCII.
    """
    if isinstance(value, (bool, dict, list, bytes)):
        raise TypeError(f"a value of the type {type(value).__name__} is not a number")
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        raise ValueError(f"{repr_of(value)} is not a number")
    return value


def _float(value: Any) -> Any:
    """Return the value if it can be a number. The text of NaN becomes NaN, which SQLite would store as NULL."""
    value = _number(value)
    return math.nan if isinstance(value, str) and value.strip().lower().lstrip("+-") == "nan" else value


def _integer(value: Any) -> Any:
    """Return the integer of a number or of its text. Raises: ValueError for a fraction, because PostgreSQL would round it."""
    value = _number(value)
    if value is None:
        return None
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() >= _MOST_DIGITS:
        raise ValueError(
            f"{repr_of(value)} has more digits than a column of integers can hold"
        )  # int() would write out all its zeros
    number = int(value)
    if not isinstance(value, str) and number != value:
        raise ValueError(f"{value} has a fraction")
    return number


def _text(value: Any) -> Any:
    if isinstance(value, (Decimal, uuid.UUID)):
        return str(_decimal(value) if isinstance(value, Decimal) else value)
    return value if value is None or isinstance(value, str) else json.dumps(value, allow_nan=False)


def _timestamp(value: Any, has_zone: bool) -> datetime | None:
    """Return the time of an ISO-8601 text, of a datetime, or of a number (epoch ms).

    A text or datetime without an offset is in UTC. A column without a zone gets the time in UTC.

    Raises: TypeError for a value of another type; ValueError for a text that is not ISO-8601, such as epoch ms as text.
    """
    if value is None:
        return None
    if isinstance(value, (str, datetime)):
        given = datetime.fromisoformat(_no_number(value, 8)) if isinstance(value, str) else value
        at = (given if given.tzinfo else given.replace(tzinfo=UTC)).astimezone(UTC)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        at = datetime.fromtimestamp(value / 1000, tz=UTC)
    else:
        raise TypeError(f"a value of the type {type(value).__name__} is not a time: ISO-8601 text and epoch ms are")
    return at if has_zone else at.replace(tzinfo=None)


def _time_of_day(value: Any, has_zone: bool) -> Any:
    """Return the time of day of an ISO-8601 text, in UTC if it has no offset. A column without a zone gets the time in UTC."""
    if isinstance(value, datetime):
        return value if has_zone else _without_zone(value)
    if not isinstance(value, str):
        return value
    given = time.fromisoformat(_no_number(value, 6))
    at = datetime.combine(date(2000, 1, 2), given, given.tzinfo or UTC).astimezone(UTC).timetz()
    return at if has_zone else at.replace(tzinfo=None)


def _date(value: Any) -> Any:
    """Return the date of an ISO-8601 text, or a datetime in UTC. The column keeps only the day of that datetime."""
    if isinstance(value, datetime):
        return _without_zone(value)
    return date.fromisoformat(_no_number(value, 8)) if isinstance(value, str) else value


def _without_zone(value: datetime) -> datetime:
    """Return a datetime in UTC, without its zone. PostgreSQL would take the day or the time in the zone of its session."""
    return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value


def _no_number(value: str, digits: int) -> str:
    """Return the text `value` unless it is a number with too many digits.

    - `digits`: number of digits of an ISO-8601 date or time without separators.

    Raises: ValueError if the text is a number of more digits, because Python would read the epoch ms 1712123010123 as a day of the year
    1712.
    """
    if len(value) > digits and value.isdecimal():
        raise ValueError(f"{repr_of(value)} is a number, and not ISO-8601")
    return value


def _decimal(value: Any) -> Any:
    """Return the decimal of a number or of its text.

    Raises: ValueError for NaN and infinity: PostgreSQL stores them, and every sum of the column is NaN from then on.
    """
    number = Decimal(str(value)) if isinstance(_number(value), (int, float, str)) else value
    if isinstance(number, Decimal) and not number.is_finite():
        raise ValueError(f"{repr_of(value)} is not a finite number")
    return number


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _uuid(value: Any) -> Any:
    return uuid.UUID(value) if isinstance(value, str) else value


_CONVERSIONS: tuple[tuple[Any, Convert], ...] = (
    (types.JSON, _json),
    (types.Date, _date),
    (types.LargeBinary, _bytes),
    (types.Uuid, _uuid),
    (types.Integer, _integer),
    (types.Float, _float),  # It comes first, because a Float is a Numeric.
    (types.Numeric, _decimal),
    (types.String, _text),
)


UNCONVERTIBLE = (ValueError, TypeError, ArithmeticError, RecursionError, OSError)
"""The errors that a conversion raises for a value that does not fit. OSError stands for a time that the platform cannot represent."""


def is_storable_json(value: Any) -> bool:
    """Return whether PostgreSQL's jsonb accepts a value. It refuses the NUL character, half a surrogate pair, NaN and infinity."""
    try:
        return b"\\u0000" not in json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return False


def storable_json(value: Any) -> Any:
    """Return the value with escapes instead of the characters that jsonb refuses.

    Used for dead letters, which must be stored whatever text they have. The column `data` has the original bytes.

    Raises: ValueError for NaN and infinity, which JSON does not have.
    """
    if isinstance(value, str):
        return value.replace("\0", "\\u0000").encode(errors="backslashreplace").decode()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"JSON has no {value}")
        return value
    if isinstance(value, dict):
        return {storable_json(key): storable_json(item) for key, item in value.items()}
    return list(map(storable_json, value)) if isinstance(value, list) else value
