"""Parses times, durations and sizes, in all spellings that settings and arguments accept. Says why a time is refused."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TypeAlias

from ..errors import ConfigurationError

TIME_FORMS = "2026-11-22T06:00:00Z, or with another zone, or epoch seconds"
"""The times that `epoch_ms` accepts, for messages."""
MAX_MS = 253_402_300_799_999
"""The end of the year 9999 (epoch ms). Microseconds since 1978, nanoseconds and sequence numbers are greater numbers."""
_MILLIS_FROM = 1e11
"""Numbers from here on are milliseconds, and smaller ones seconds. In seconds it is after the year 5000, in milliseconds before 1974."""
_NANOS_FROM, _SEQUENCE_NUMBERS_FROM = 1e17, 1e20
_NUMBER = re.compile(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?")


def epoch_ms(given: str) -> int:
    """Return a time as epoch ms.

    Raises: ValueError or OverflowError if it is neither a number nor a time with a zone, or if it is not from 1970 to 9999.
    """
    if _NUMBER.fullmatch(given):
        number = float(given)
        return checked_epoch_ms(number if number >= _MILLIS_FROM else number * 1000)
    moment = datetime.fromisoformat(given)
    if moment.tzinfo is None:  # Spark, pandas and databases print times without their zone, which need not be UTC
        raise ValueError(given)
    return datetime_ms(moment)


def datetime_ms(moment: datetime) -> int:
    """Return a time as epoch ms. Without a zone it is taken as UTC. Raises: ValueError if it is not from 1970 to 9999."""
    return checked_epoch_ms((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def iso_time(epoch_ms: int) -> str:
    """Return epoch ms as a time in ISO-8601 and UTC. Outside the years 1 to 9999, return the number as text."""
    try:
        moment = datetime.fromtimestamp(epoch_ms / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return str(epoch_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def checked_epoch_ms(given: float) -> int:
    """Return a time in epoch ms, rounded to a whole number. Raises: ValueError if it is not from 1970 to 9999."""
    if not 0 <= given <= MAX_MS:
        raise ValueError(given)
    return round(given)


def why_no_time(given: object) -> str:
    """Return why `epoch_ms` refuses a value, for example because its zone is missing. Return "" if the reason is not known."""
    text = str(given).strip()
    if is_sequence_number(text):
        return "a sequence number is a place in one shard, not a time"
    with contextlib.suppress(ValueError):
        if not _NUMBER.fullmatch(text):
            moment = datetime.fromisoformat(text)
            exact = moment.isoformat()
            return "" if moment.tzinfo else f"it has no zone; write {exact}Z for UTC, or another such as {exact}+01:00"
        if MAX_MS < (number := float(text)) < _SEQUENCE_NUMBERS_FROM:
            unit, per_ms = ("nanoseconds", 1e6) if number >= _NANOS_FROM else ("microseconds", 1e3)
            return f"these may be {unit}; in milliseconds it is {number / per_ms:.0f}"
    return ""


def is_sequence_number(given: str) -> bool:
    """Return whether a text is a sequence number of Kinesis. That has 56 digits, while a time in epoch nanoseconds has 19."""
    return given.isdecimal() and float(given) >= _SEQUENCE_NUMBERS_FROM


# Durations and sizes with their units.

_MILLISECONDS = {
    "ms": 1, "millis": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1_000, "sec": 1_000, "second": 1_000, "seconds": 1_000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
_BYTES = {"b": 1, "byte": 1, "bytes": 1} | {
    spelling: 1024**power
    for power, letter in enumerate("kmgt", 1)
    for spelling in (letter, f"{letter}b", f"{letter}ib")
}
"""Bytes by unit. As in Spark and Flink, `kb` and `mb` are powers of 1024."""
_PER_UNIT: Mapping[str, Mapping[str, int | Decimal]] = {
    "ms": _MILLISECONDS,
    "s": {name: Decimal(millis) / 1_000 for name, millis in _MILLISECONDS.items()},
    "bytes": _BYTES,
}
EXAMPLES = {
    "ms": ("a duration", ("10s", "1s", "1m", "1h", "1d", "100ms")),
    "s": ("a duration", ("5m", "10s", "1s", "1h", "1d")),
    "bytes": ("a size", ("64mb", "1mb", "64kb", "1kb", "1gb")),
}
"""For each unit of properties that accepts a text with a unit: what the text is, and examples, of which the first in range is shown."""
_WITH_UNIT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z]+)", re.ASCII)


def example_with_unit(unit: str, minimum: int, maximum: int) -> str:
    """Return an example from `minimum` to `maximum`, such as `a size such as 64mb`, for messages and the reference page.

    Return "" for a unit after which no text is accepted, and if no example is in the range.
    """
    what, examples = EXAMPLES.get(unit, ("", ()))
    fitting = (each for each in examples if minimum <= (parse_with_unit(each, unit) or 0) <= maximum)
    return next((f"{what} such as {each}" for each in fitting), "")


def parse_with_unit(given: str, unit: str) -> int | None:
    """Return a text such as `5 minutes` as a number of `unit` (ms, s or bytes).

    Return None if the text has another form, or if the number would not be whole.
    """
    match = _WITH_UNIT.fullmatch(given)
    factor = _PER_UNIT.get(unit, {}).get(match[2].lower()) if match else None
    if match is None or factor is None:
        return None
    value = Decimal(match[1]) * factor
    return int(value) if value == value.to_integral_value() else None


Duration: TypeAlias = float | str | timedelta
"""A duration as an argument in Python: a number of seconds, a text with a unit such as `15m`, or a timedelta."""
A_DURATION = "seconds, a text such as 15m or 200ms, or a timedelta"
"""The durations that `seconds_of` accepts, for messages."""
_NEEDS_UNIT_FROM = 1_000


def seconds_of(name: str, given: Duration, *, may_be_long: bool = False) -> float:
    """Return a duration that a user has given as an argument in Python, in seconds.

    - `name`: the name of the argument, for the message.
    - `may_be_long`: whether a number of 1000 or more is accepted. Otherwise it is refused, because it was probably meant in milliseconds.

    Raises: ConfigurationError if `given` is not a duration, or if it is refused.
    """
    if isinstance(given, timedelta):
        return given.total_seconds()
    found = parse_with_unit(given.strip(), "ms") if isinstance(given, str) else None
    if found is not None:
        return found / 1000
    if isinstance(given, bool) or not isinstance(given, int | float) or math.isnan(given):
        raise ConfigurationError(name, given, A_DURATION)
    if not may_be_long and _NEEDS_UNIT_FROM <= given < math.inf:
        reason = f"a number without a unit is in seconds; write '{given:.15g}s' or '{given:.15g}ms'"
        raise ConfigurationError(name, given, reason=reason)
    return given
