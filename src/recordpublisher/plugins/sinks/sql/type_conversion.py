"""Converts JSON values to the type of a column: JSON has no timestamps, decimals or bytes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from sqlalchemy import types

Convert = Callable[[Any], Any]


def conversion_of(column_type: types.TypeEngine[Any]) -> Convert:
    """The conversion from a JSON value to this column type; it raises ValueError or TypeError for a value that does not fit."""
    for kind, convert in _CONVERSIONS:
        if isinstance(column_type, kind):
            return convert
    return _nested_as_json


def _nested_as_json(value: Any) -> Any:
    """Objects and lists as their JSON text."""
    return json.dumps(value) if isinstance(value, (dict, list)) else value


def _text(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _timestamp(value: Any) -> Any:
    """ISO-8601 text, or a number: epoch ms."""
    if isinstance(value, str):
        return datetime.fromisoformat(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return datetime.fromtimestamp(value / 1000, tz=UTC)
    return value


def _date(value: Any) -> Any:
    return date.fromisoformat(value) if isinstance(value, str) else value


def _time_of_date(value: Any) -> Any:
    return time.fromisoformat(value) if isinstance(value, str) else value


def _decimal(value: Any) -> Any:
    return Decimal(str(value)) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else value


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _uuid(value: Any) -> Any:
    return uuid.UUID(value) if isinstance(value, str) else value


def _unchanged(value: Any) -> Any:
    return value


_CONVERSIONS: tuple[tuple[Any, Convert], ...] = (
    (types.JSON, _unchanged),
    (types.ARRAY, _unchanged),
    (types.DateTime, _timestamp),
    (types.Date, _date),
    (types.Time, _time_of_date),
    (types.LargeBinary, _bytes),
    (types.Uuid, _uuid),
    (types.Float, _nested_as_json),  # a kind of Numeric
    (types.Numeric, _decimal),
    (types.String, _text),
)
