"""Properties as keyword arguments: `region="eu-west-1"` for `aws.region` (C1). Every property of the table has a keyword."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from ..errors import ConfigurationError
from ..password_masking import MASK
from .properties import Properties, Property, is_secret


def properties_of(settings: Mapping[str, object], given: Properties) -> dict[str, object]:
    """The properties that keyword arguments stand for; None stands for none.

    Raises: ConfigurationError for an unknown keyword, and for one whose property is in `given` with another value.
    """
    found: dict[str, object] = {}
    for keyword, value in settings.items():
        if value is not None:
            declared = _declared(keyword, value)
            _check_same(keyword, value, declared, given)
            found[declared.key] = value
    return found


@cache
def properties_by_keyword() -> dict[str, Property[Any]]:
    """Each property of the table by its keyword. A prefix, which stands for many keys, has none."""
    return {declared.keyword: declared for declared in _properties_of_the_table() if not declared.is_prefix}


def _properties_of_the_table() -> Iterator[Property[Any]]:
    from . import table
    from .retries import RetryProperties

    for value in vars(table).values():
        if isinstance(value, RetryProperties):
            yield from (value.max_retries, value.base, value.maximum, value.exponent)
        elif isinstance(value, Property):
            yield value


def _declared(keyword: str, value: object) -> Property[Any]:
    known = properties_by_keyword()
    if keyword not in known:
        hint = "".join(f"; did you mean '{nearest}'?" for nearest in _nearest(keyword, known)[:1])
        valid = "the keys of docs/reference/properties.md without flink. or aws., with _ for each dot"
        shown = MASK if is_secret(keyword) else value
        raise ConfigurationError(keyword, shown, valid, reason=f"there is no such keyword argument{hint}")
    return known[keyword]


def _nearest(keyword: str, known: Mapping[str, Property[Any]]) -> list[str]:
    """Known keywords: those whose key ends in the given words (`initpos`), else those with a similar spelling."""
    ending = "." + keyword.replace("_", ".")
    return [each for each, declared in known.items() if declared.key.endswith(ending)] or difflib.get_close_matches(
        keyword, known, n=1
    )


def _check_same(keyword: str, value: object, declared: Property[Any], given: Properties) -> None:
    own = Properties({declared.key: value})
    if not given.is_set(declared) or given.value(declared) == own.value(declared):
        return
    ours, theirs = (MASK if declared.secret else each.value(declared) for each in (own, given))
    reason = f"the keyword argument '{keyword}' has the value {ours!r}"
    raise ConfigurationError(declared.key, theirs, "one of the two, or the same value in both", reason=reason)
