"""Reads the fields of Protobuf messages from their descriptors: their types as in `msgspec.inspect`, their values as Python's."""

from collections.abc import Callable
from datetime import UTC
from functools import lru_cache
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple

from msgspec import inspect


class TypedField(NamedTuple):
    """A field of a type: its name in JSON, its type as `msgspec.inspect` describes it, and `take`, which gets it from a value."""

    name: str
    type: Any
    take: Callable[[Any], Any]


def is_message(of: Any) -> bool:
    """Return whether `of` is a message, or a class of messages."""
    return hasattr(of, "FromString") and hasattr(of, "DESCRIPTOR")


@lru_cache(1_000)  # the Glue Schema Registry makes classes while a job runs
def fields_of_message(of: Any) -> list[TypedField]:
    """Return the fields of a class of messages. A field that is not set is None, if its message records whether it is set."""
    return [_field(field) for field in of.DESCRIPTOR.fields]


def _field(field: Any) -> TypedField:
    kind, convert = _single(field)
    take: Callable[[Any], Any] = attrgetter(field.name)
    if field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (_single(field.message_type.fields_by_name[part]) for part in ("key", "value"))
        convert = value[1]
        entries = lambda message: {name: convert(item) for name, item in take(message).items()}  # noqa: E731
        return TypedField(field.name, inspect.DictType(key[0], value[0]), entries)
    if field.is_repeated:
        return TypedField(field.name, inspect.ListType(kind), lambda message: list(map(convert, take(message))))
    if field.has_presence:
        name = field.name
        return TypedField(name, kind, lambda message: convert(take(message)) if message.HasField(name) else None)
    return TypedField(field.name, kind, take if convert is _as_it_is else lambda message: convert(take(message)))


def _single(field: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the type of one value of a field, and the function that makes Python's value of it. An enum is its name, as in JSON."""
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return inspect.StrType(), lambda number: names.get(number, str(number))
    if (message := field.message_type) is None:
        return (inspect.BytesType() if field.type == field.TYPE_BYTES else _SCALARS[field.cpp_type]), _as_it_is
    if message.full_name in _OF_MESSAGES:
        return _OF_MESSAGES[message.full_name]
    if message.file.name == "google/protobuf/wrappers.proto":
        return _single(message.fields_by_name["value"])[0], attrgetter("value")
    from google.protobuf import json_format, message_factory

    if message.full_name == "google.protobuf.Struct":
        return inspect.DictType(inspect.StrType(), inspect.AnyType()), json_format.MessageToDict
    return inspect.CustomType(message_factory.GetMessageClass(message)), _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


_OF_MESSAGES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "google.protobuf.Timestamp": (inspect.DateTimeType(), methodcaller("ToDatetime", UTC)),
    "google.protobuf.Duration": (inspect.TimeDeltaType(), methodcaller("ToTimedelta")),
}
_INT, _FLOAT = inspect.IntType(), inspect.FloatType()
_SCALARS = dict(enumerate((_INT, _INT, _INT, _INT, _FLOAT, _FLOAT, inspect.BoolType(), None, inspect.StrType()), 1))
"""Types by `FieldDescriptor.cpp_type`: signed and unsigned integers of 32 and 64 bits, double, float, bool, enum, text."""
