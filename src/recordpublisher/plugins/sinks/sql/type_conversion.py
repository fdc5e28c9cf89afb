"""From JSON's few types to those of a column: JSON knows neither moments nor decimals nor bytes."""

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
    """What makes a JSON value fit for a column; raises ValueError or TypeError for one that cannot fit."""
    for kind, convert in _CONVERSIONS:
        if isinstance(column_type, kind):
            return convert
    return _plain


def _plain(value: Any) -> Any:
    """Objects and lists as their JSON text."""
    return json.dumps(value) if isinstance(value, (dict, list)) else value


def _text(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _moment(value: Any) -> Any:
    """ISO-8601 text, or a number: epoch ms."""
    if isinstance(value, str):
        return datetime.fromisoformat(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return datetime.fromtimestamp(value / 1000, tz=UTC)
    return value


def _day(value: Any) -> Any:
    return date.fromisoformat(value) if isinstance(value, str) else value


def _time_of_day(value: Any) -> Any:
    return time.fromisoformat(value) if isinstance(value, str) else value


def _decimal(value: Any) -> Any:
    return Decimal(str(value)) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else value


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _uuid(value: Any) -> Any:
    return uuid.UUID(value) if isinstance(value, str) else value


def _as_it_is(value: Any) -> Any:
    return value


_CONVERSIONS: tuple[tuple[Any, Convert], ...] = (
    (types.JSON, _as_it_is),
    (types.ARRAY, _as_it_is),
    (types.DateTime, _moment),
    (types.Date, _day),
    (types.Time, _time_of_day),
    (types.LargeBinary, _bytes),
    (types.Uuid, _uuid),
    (types.Float, _plain),  # a kind of Numeric
    (types.Numeric, _decimal),
    (types.String, _text),
)
