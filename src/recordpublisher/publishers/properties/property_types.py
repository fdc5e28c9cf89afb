"""The types of properties: each function declares a property with its parser and its description of valid values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, overload

from .properties import Property, declare
from .units import EXAMPLES, parse_with_unit

NO_MAXIMUM = 2**62


@overload
def text(key: str, sentence: str, default: str, **more: Any) -> Property[str]: ...
@overload
def text(key: str, sentence: str, default: None = None, **more: Any) -> Property[str | None]: ...
def text(key: str, sentence: str, default: str | None = None, **more: Any) -> Property[Any]:
    """Any text that is not empty; None when it is not given and there is no default."""
    return declare(
        Property(key, _parse_not_empty, default, "a text that is not empty", sentence, type_name="string", **more)
    )


def choice(
    key: str, sentence: str, default: str, options: tuple[str, ...], *, note: str = "", **more: Any
) -> Property[str]:
    """One of some names, without case. `note`: what to know about the last of them."""

    def parse(given: str) -> str:
        if given.upper() not in options:
            raise ValueError(given)
        return given.upper()

    valid = ", ".join(options) + (f" ({note})" if note else "")
    return declare(Property(key, parse, default, valid, sentence, type_name="enum", **more))


def integer(
    key: str,
    sentence: str,
    default: int,
    minimum: int = 0,
    maximum: int = NO_MAXIMUM,
    also: tuple[int, ...] = (),
    unit: str = "",
    **more: Any,
) -> Property[int]:
    """A whole number in a range; `also` are further values with a special meaning (-1: off).

    With the unit ms, s or bytes, a duration (`10s`) or size (`64mb`) is taken too.
    """
    return declare(
        Property(
            key,
            _range_parser(minimum, maximum, also, unit),
            default,
            _describe_range("a whole number", minimum, maximum, also, unit),
            sentence,
            unit=unit,
            type_name="int",
            **more,
        )
    )


def optional_integer(
    key: str, sentence: str, minimum: int = 0, maximum: int = NO_MAXIMUM, unit: str = "", **more: Any
) -> Property[int | None]:
    """As `integer`; not set has a special meaning."""
    return declare(
        Property(
            key,
            _range_parser(minimum, maximum, (), unit),
            None,
            _describe_range("a whole number", minimum, maximum, (), unit),
            sentence,
            unit=unit,
            type_name="int",
            **more,
        )
    )


def number(key: str, sentence: str, default: float, minimum: float = 0.0, **more: Any) -> Property[float]:
    """A finite decimal number not below a minimum."""

    def parse(given: str) -> float:
        value = float(_plain_digits(given))
        if not math.isfinite(value) or value < minimum:
            raise ValueError(given)
        return value

    return declare(
        Property(key, parse, default, f"a number of at least {minimum:g}", sentence, type_name="double", **more)
    )


def boolean(key: str, sentence: str, default: bool, **more: Any) -> Property[bool]:
    """true or false."""

    def parse(given: str) -> bool:
        if given.lower() not in ("true", "false"):
            raise ValueError(given)
        return given.lower() == "true"

    return declare(Property(key, parse, default, "true or false", sentence, type_name="boolean", **more))


def prefix(key: str, sentence: str, **more: Any) -> Property[str | None]:
    """Every key that begins with `key`, which ends in a dot or bracket."""
    return declare(
        Property(key, _parse_not_empty, None, "a text that is not empty", sentence, type_name="string per name", **more)
    )


def _parse_not_empty(given: str) -> str:
    if not given:
        raise ValueError("empty")
    return given


def _range_parser(minimum: int, maximum: int, also: tuple[int, ...], unit: str) -> Callable[[str], int]:
    def parse(given: str) -> int:
        with_unit = parse_with_unit(given, unit)
        value = int(_plain_digits(given)) if with_unit is None else with_unit
        if value not in also and not minimum <= value <= maximum:
            raise ValueError(given)
        return value

    return parse


def _plain_digits(given: str) -> str:
    """Accept plain ASCII numbers only. Python also parses `1_000` and digits of other scripts."""
    if not re.fullmatch(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?", given):
        raise ValueError(given)
    return given


def _describe_range(kind: str, minimum: int, maximum: int, also: tuple[int, ...], unit: str) -> str:
    words = f"{kind} of at least {minimum}" if maximum >= NO_MAXIMUM else f"{kind} from {minimum} to {maximum}"
    others = [*map(str, also), *([EXAMPLES[unit]] if unit in EXAMPLES else [])]
    return words + "".join(f", or {other}" for other in others)
