"""Finds what is wrong with an input, in the service's words: every violated constraint of the API model, not only the first."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from zlib import crc32

import msgspec
from msgspec import inspect

from ..api_errors import ApiError

MOST = 10
"""The most violations that the service names in one message."""
ENUM_ORDER = ("AFTER_SEQUENCE_NUMBER", "LATEST", "AT_TIMESTAMP", "AT_SEQUENCE_NUMBER", "TRIM_HORIZON")
"""The order in which the service shows the values of ShardIteratorType. Other values are shown by name."""
ENTRY = "com.amazonaws.kinesis.v20131202.PutRecordsRequestEntry"
"""How the service shows a record, followed by a hash.

Structures in other lists are shown in the same way, because the service's way is not known.
"""
TYPES: tuple[tuple[type, type], ...] = (
    (inspect.StrType, str),
    (inspect.LiteralType, str),
    (inspect.IntType, int),
    (inspect.ListType, list),
    (inspect.DictType, dict),
    (inspect.StructType, dict),
)


def violations(kind: type[msgspec.Struct], body: bytes) -> str | None:
    """Return the service's message for an input that is not valid, or None if it violates no constraint of the model."""
    found = list(_of_fields(kind, msgspec.json.decode(body or b"{}"), ""))[:MOST]
    if not found:
        return None
    return f"{len(found)} validation error{'s' * (len(found) > 1)} detected: {'; '.join(found)}"


def violation(value: str, path: str, constraint: str) -> str:
    """Return one violation in the service's words."""
    return f"Value {value} at '{path}' failed to satisfy constraint: {constraint}"


def _of_fields(kind: type, given: dict[str, Any], path: str) -> Iterator[str]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        value = given.get(field.encode_name)
        name = path + field.encode_name[0].lower() + field.encode_name[1:]
        if value is not None:
            yield from _of_value(_without_none(field.type), value, name)
        elif field.required:
            yield violation("null", name, "Member must not be null")


def _of_value(kind: inspect.Type, value: Any, path: str) -> Iterator[str]:
    _check_type(kind, value, path)
    say = partial(violation, f"'{_shown(value)}'", path)
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        yield from _of_fields(kind.cls, value, f"{path}.")
        return
    yield from map(say, _broken(kind, value))
    if isinstance(kind, inspect.ListType) and isinstance(kind.item_type, inspect.StructType):
        for place, item in enumerate(value, 1):
            yield from _of_value(kind.item_type, item, f"{path}.{place}.member")
    elif isinstance(kind, inspect.ListType):
        yield from _of_members(say, "Member", kind.item_type, value)
    elif isinstance(kind, inspect.DictType):
        yield from _of_members(say, "Map keys", kind.key_type, value)
        yield from _of_members(say, "Map value", kind.value_type, value.values())


def _check_type(kind: inspect.Type, value: Any, path: str) -> None:
    """Raise SerializationException for a wrong type.

    Wrong types are reported before violated constraints, wherever they are in the input.
    """
    expected = next((types for of, types in TYPES if isinstance(kind, of)), object)
    if not isinstance(value, expected):
        raise ApiError("SerializationException", f"{path} is of the wrong type: {type(value).__name__}")


def _of_members(say: Callable[[str], str], what: str, kind: inspect.Type, values: Any) -> Iterator[str]:
    """Return one violation for all members, which names every constraint of a member."""
    for value in values:
        _check_type(kind, value, what)
    if any(any(_broken(kind, value)) for value in values):
        yield say(f"{what} must satisfy constraint: [{', '.join(_constraints(kind))}]")


def _broken(kind: inspect.Type, value: Any) -> Iterator[str]:
    """Return the constraints that the value itself violates."""
    if isinstance(kind, inspect.LiteralType) and value not in kind.values:
        yield f"Member must satisfy enum value set: [{', '.join(_ordered(kind.values))}]"
    if isinstance(kind, inspect.StrType) and kind.pattern is not None and not re.search(kind.pattern, value):
        yield f"Member must satisfy regular expression pattern: {kind.pattern[4:-3]}"
    if isinstance(kind, inspect.IntType):
        yield from _out_of_range("value", kind.ge, kind.le, value)
    if isinstance(kind, inspect.StrType | inspect.ListType | inspect.DictType):
        yield from _out_of_range("length", kind.min_length, kind.max_length, len(value))


def _out_of_range(what: str, lowest: float | None, highest: float | None, found: float) -> Iterator[str]:
    if highest is not None and found > highest:
        yield f"Member must have {what} less than or equal to {highest}"
    if lowest is not None and found < lowest:
        yield f"Member must have {what} greater than or equal to {lowest}"


def _constraints(kind: inspect.Type) -> Iterator[str]:
    if isinstance(kind, inspect.LiteralType):
        yield f"Member must satisfy enum value set: [{', '.join(_ordered(kind.values))}]"
    elif isinstance(kind, inspect.StrType):
        yield f"Member must have length less than or equal to {kind.max_length}"
        yield f"Member must have length greater than or equal to {kind.min_length or 0}"


def _ordered(values: Any) -> list[str]:
    return sorted(values, key=lambda value: (ENUM_ORDER.index(value) if value in ENUM_ORDER else 0, value))


def _without_none(kind: inspect.Type) -> inspect.Type:
    if not isinstance(kind, inspect.UnionType):
        return kind
    (only,) = (each for each in kind.types if not isinstance(each, inspect.NoneType))
    return only


def _shown(value: Any) -> str:
    """Return a value as the service shows it; the service is written in Java."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"[{', '.join(f'{ENTRY}@{crc32(msgspec.json.encode(each)):x}' for each in value)}]"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}={_shown(each)}' for key, each in value.items())}}}"
    return str(value)
