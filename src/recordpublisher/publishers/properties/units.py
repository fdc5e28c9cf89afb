"""Numbers with a unit: durations (`10s`, `5 minutes`) and sizes (`64mb`), beside plain numbers in the property's own unit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

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
"""As in Spark and Flink, `kb` and `mb` are powers of 1024."""
_PER_UNIT: Mapping[str, Mapping[str, int | Decimal]] = {
    "ms": _MILLISECONDS,
    "s": {name: Decimal(millis) / 1_000 for name, millis in _MILLISECONDS.items()},
    "bytes": _BYTES,
}
EXAMPLES = {"ms": "a duration such as 10s", "s": "a duration such as 5m", "bytes": "a size such as 64mb"}
"""For each unit of properties that takes other spellings: what to write, for messages and the reference page."""
_WITH_UNIT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z]+)", re.ASCII)


def parse_with_unit(given: str, unit: str) -> int | None:
    """A text such as `5 minutes` as a whole number of `unit` (ms, s or bytes); None if it is no such text, or not whole."""
    match = _WITH_UNIT.fullmatch(given)
    factor = _PER_UNIT.get(unit, {}).get(match[2].lower()) if match else None
    if match is None or factor is None:
        return None
    value = Decimal(match[1]) * factor
    return int(value) if value == value.to_integral_value() else None
