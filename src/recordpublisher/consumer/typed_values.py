"""Decodes JSON into dataclasses, msgspec Structs, pydantic models and others, and reads the fields, types and columns of such values.

`Json` decodes with checks, `plain_value` turns values back into plain ones. `fields_of` and `fields_of_message` (Protobuf) read the fields
of a type, and `column_type` reads the type of the column that a field names.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, DecimalException, Inexact, InvalidOperation
from functools import cache, lru_cache, partial
from operator import attrgetter, methodcaller
from typing import Any, Generic, NamedTuple

import msgspec
from msgspec import inspect

from ..publishers.errors import ConfigurationError
from ..publishers.records import RecordBatch, V

VALID = "a dataclass, msgspec.Struct, TypedDict, NamedTuple, attrs class, pydantic model, or a type such as list[...] of one of these"


# typing has TypeAliasType since Python 3.12.
_NAMED = (typing.NewType, *filter(None, [getattr(typing, "TypeAliasType", None)]))
_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
"""The limits of a `msgspec.Meta`, which only msgspec checks."""
_MARKS = ("__struct_fields__", "__dataclass_fields__", "__attrs_attrs__", "__pydantic_validator__")


class Json(Generic[V]):
    """Decodes JSON documents into the type `into`, with checks: `Json(Order)`, `Json(list[Order])`.

    `into` is a type that msgspec decodes (a dataclass, Struct, TypedDict, NamedTuple, attrs class or tagged union), a pydantic model or a
    union of such models, or a type made of these. With `strict=False` the text "1" is accepted where a number is expected; pydantic models
    have a setting of their own for this.

    Raises: ConfigurationError if JSON cannot be decoded into the type.
    """

    def __init__(self, into: type[V] | types.UnionType, *, strict: bool = True) -> None:
        self.into = into = underlying_type(into)
        self._name = type_name(into)
        self._decode = _decoder(into, strict)

    def values(self, batch: RecordBatch) -> Sequence[V] | None:
        """Return the decoded JSON document of each record. Raises: ValueError that says in which field a record differs from the type."""
        with _explained(self._name):
            return list(map(self._decode, batch.data))


def converter_into(into: type[V] | types.UnionType) -> Callable[[Any], V]:
    """Return a function that converts plain values, such as those that Avro decodes, into the type `into`.

    The function raises ValueError if a value does not fit the type.

    Raises: ConfigurationError if JSON cannot be decoded into the type.
    """
    _decoder(into, True)
    make: Any = partial(_from_plain if _is_for_pydantic(into) else _made_by_msgspec, into)

    def convert(value: Any) -> V:
        with _explained(type_name(into)):
            converted: V = make(value)
        return converted

    return convert


def is_type(given: object) -> bool:
    """Return whether `given` is a class, or a form such as `list[Order]`, `Order | Refund` or a `NewType`."""
    is_form = isinstance(given, (type, types.UnionType, types.GenericAlias)) or typing.get_origin(given) is not None
    return is_form or underlying_type(given) is not given


def underlying_type(given: Any) -> Any:
    """Return the type behind a `NewType` or a `type` statement. Return anything else unchanged."""
    while isinstance(given, _NAMED):
        given = given.__supertype__ if isinstance(given, typing.NewType) else given.__value__
    return given


def type_info(of: Any) -> Any:
    """Return a type as `msgspec.inspect` describes it. A type that only pydantic can decode, such as a union of its models, is any type."""
    try:
        return inspect.type_info(of)
    except TypeError:  # Fields of a model may have types that msgspec refuses, such as `str | datetime`.
        return inspect.AnyType()


def has_fields(value: Any) -> bool:
    """Return whether a value has fields: an object of a dataclass, Struct, attrs class or pydantic model, or a Protobuf message."""
    is_marked = any(hasattr(value, name) for name in _MARKS) and not _is_root_model(type(value))
    return is_marked or is_protobuf_message(value)


def fields_of(info: Any) -> list[TypedField] | None:
    """Return the fields of a type that `msgspec.inspect` describes, in the order of the class.

    Return None for a type without fields, such as a number or a list.
    """
    if isinstance(info, inspect.CustomType) and _is_root_model(info.cls):
        return None
    if isinstance(info, inspect.CustomType) and _is_of_pydantic(info.cls):
        fields = info.cls.model_fields.items()  # type: ignore[attr-defined]
        return [TypedField(name, type_info(_annotated(field)), attrgetter(name)) for name, field in fields]
    if isinstance(info, inspect.CustomType) and is_protobuf_message(info.cls):
        return fields_of_message(info.cls)
    if not isinstance(info, (inspect.TypedDictType, inspect.StructType, inspect.DataclassType, inspect.NamedTupleType)):
        return None
    take: Any = partial(methodcaller, "get") if isinstance(info, inspect.TypedDictType) else attrgetter
    # The order of the class is restored, because msgspec puts fields without a default first.
    written = list(typing.get_type_hints(typing.get_origin(info.cls) or info.cls))
    fields = sorted(info.fields, key=lambda field: written.index(field.name) if field.name in written else len(written))
    return [TypedField(field.encode_name, field.type, take(field.name)) for field in fields]


def type_without_none(info: Any) -> Any:
    """Return the type of an optional value without None. `info` and the result are types as `msgspec.inspect` describes them.

    A union of int and float becomes float. Other unions stay as they are.
    """
    if isinstance(info, inspect.Metadata):
        return type_without_none(info.type)
    if not isinstance(info, inspect.UnionType):
        return info
    kinds = [kind for kind in info.types if not isinstance(kind, inspect.NoneType)]
    if set(map(type, kinds)) == {inspect.IntType, inspect.FloatType}:
        return inspect.FloatType()
    return type_without_none(kinds[0]) if len(kinds) == 1 else info


def constants_of(info: Any) -> list[Any] | None:
    """Return the values of an Enum or a Literal that `msgspec.inspect` describes, or None for another type."""
    if isinstance(info, inspect.EnumType):
        return [member.value for member in info.cls]
    return list(info.values) if isinstance(info, inspect.LiteralType) else None


def plain_value(value: Any) -> Any:
    """Return a typed value as the plain values of JSON: dicts, lists, texts, numbers. Raises: TypeError if it has no such form."""
    return msgspec.to_builtins(with_all_fields(value), enc_hook=fields_of_model)


_SCALARS = frozenset({str, int, float, bool, bytes, type(None)})


def with_all_fields(value: Any) -> Any:
    """Return the value with each dataclass, Struct and attrs class in it replaced by a dict of all its fields.

    msgspec's own conversion can leave out fields that have their default.
    """
    if isinstance(value, dict):
        is_plain = _SCALARS.issuperset(map(type, value.values()))
        return value if is_plain else {key: with_all_fields(item) for key, item in value.items()}
    if value.__class__ in _SCALARS:
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(map(with_all_fields, value))
    if (fields := _written_fields(value.__class__)) is None:
        return value
    made, names = dict(fields[0]), fields[1]
    for written, name in names:
        if (item := getattr(value, name, msgspec.UNSET)) is not msgspec.UNSET:
            made[written] = item if item.__class__ in _SCALARS else with_all_fields(item)
    return made


@cache
def _written_fields(of: Any) -> tuple[dict[str, Any], list[tuple[str, str]]] | None:
    """Return how a class is written as JSON: its tag as a dict, and for each field its name in JSON and its name in Python.

    Return None for a class that msgspec writes with all fields.
    """
    if issubclass(of, msgspec.Struct):
        config, renamed = of.__struct_config__, zip(of.__struct_encode_fields__, of.__struct_fields__, strict=True)
        tag = {} if config.tag is None else {config.tag_field: config.tag}
        return None if config.array_like else (tag, list(renamed))
    attributes = [field.name for field in getattr(of, "__attrs_attrs__", ())]
    names = attributes or ([field.name for field in dataclasses.fields(of)] if dataclasses.is_dataclass(of) else [])
    has_fields = bool(names) and not _is_of_pydantic(of)
    return ({}, [(name, name) for name in names if not name.startswith("_")]) if has_fields else None


def fields_of_model(value: Any, *, by_alias: bool = False) -> Any:
    """Return the fields of a pydantic model or a Protobuf message as plain JSON values.

    `by_alias`: whether pydantic fields are named by their aliases (the names in JSON), and not by their names in the class.

    Raises: TypeError if the value is neither a model nor a message.
    """
    if _is_of_pydantic(type(value)):
        model: Any = type(value)
        return _adapter(model).dump_python(value, mode="json", by_alias=by_alias)
    if is_protobuf_message(value):
        message: Any = type(value)
        return {field.name: field.take(value) for field in fields_of_message(message)}
    raise TypeError(f"a value of the type {type(value).__name__} cannot be written as JSON")


def _decoder(into: Any, strict: bool) -> Callable[[bytes], Any]:
    try:
        if _is_for_pydantic(into):
            _check_limits(into)
            for model in filter(_is_of_pydantic, _parts(into)):
                _resolve(model)
            return _adapter(into).validate_json  # type: ignore[no-any-return]
        custom = list(_custom_types(msgspec.inspect.type_info(into)))
        strangers = [each for each in custom if not _is_of_pydantic(each) or dataclasses.is_dataclass(each)]
        for model in filter(_is_of_pydantic, custom):
            _resolve(model)
        decode = msgspec.json.Decoder(into, strict=strict, dec_hook=_from_plain).decode
    # Only the first line is used, because another line of pydantic's message has a link.
    except (TypeError, ValueError, NameError, RuntimeError) as error:
        raise ConfigurationError("deserializer", repr(into), VALID, reason=str(error).partition("\n")[0]) from error
    if strangers:
        raise ConfigurationError("deserializer", repr(into), VALID, reason=_remedy(strangers[0]))
    return decode


def _check_limits(into: Any) -> None:
    """Check that no part of a type that pydantic decodes has a limit of msgspec. Raises: TypeError, because pydantic would not check it."""
    for part in _parts(into):
        if isinstance(part, msgspec.Meta) and any(getattr(part, name) is not None for name in _LIMITS):
            raise TypeError(f"pydantic decodes the whole type and does not check {part}: use pydantic.Field")


def _remedy(stranger: Any) -> str:
    name = getattr(stranger, "__name__", stranger)
    if is_protobuf_message(stranger):
        return f"{name} is a Protobuf message: give rp.Protobuf({name})"
    if _is_of_pydantic(stranger):
        return (
            f"{name} is a dataclass of pydantic, which would not be validated inside another type: make it a BaseModel"
        )
    if callable(getattr(stranger, "values", None)) and not (
        isinstance(stranger, type) and issubclass(stranger, Mapping)
    ):
        return f"{name} is the class of a deserializer: give an object of it, such as {name}(...)"
    return f"{name} is a class whose fields are not known here: give a function of a Record that makes one"


def _custom_types(info: Any) -> Iterator[Any]:
    """Yield the classes inside a type for which msgspec cannot make values, or would make them without pydantic's checks."""
    seen: set[int] = set()
    waiting = [info]
    while waiting:
        each = waiting.pop()
        if isinstance(each, (list, tuple)):
            waiting += each
        elif isinstance(each, (msgspec.inspect.Type, msgspec.inspect.Field)) and id(each) not in seen:
            seen.add(id(each))
            of = getattr(each, "cls", None)
            if isinstance(each, msgspec.inspect.CustomType) or _is_of_pydantic(of):
                yield of
            waiting += [getattr(each, name) for name in each.__struct_fields__]


def _is_of_pydantic(given: Any) -> bool:
    return isinstance(given, type) and "__pydantic_validator__" in vars(given)


def _annotated(field: Any) -> Any:
    """Return the type of a field of a model with its `msgspec.Meta`, which pydantic keeps apart from the annotation."""
    of = field.annotation
    for each in field.metadata:
        of = typing.Annotated[of, each] if isinstance(each, msgspec.Meta) else of
    return of


def _is_root_model(given: Any) -> bool:
    """Return whether `given` is a `RootModel` of pydantic, whose value is not a JSON object with its fields."""
    return isinstance(given, type) and bool(getattr(given, "__pydantic_root_model__", False))


def _is_for_pydantic(into: Any) -> bool:
    """Return whether pydantic decodes the whole type: a model, or a type with a union of models inside, which msgspec refuses."""
    return _is_of_pydantic(into) or any(
        sum(member is not type(None) for member in members) > 1 and any(map(_is_of_pydantic, members))
        for members in map(_union_members, _parts(into))
    )


def _parts(into: Any) -> Iterator[Any]:
    """Yield a type and the types that it is made of: `list[A | B]` has the parts `list[A | B]`, `A | B`, `A` and `B`."""
    seen, waiting = set[int](), [into]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:  # A `type` statement may refer to itself.
            continue
        seen.add(id(each))
        yield (part := underlying_type(each))
        if typing.get_origin(part) is not typing.Literal:
            waiting += typing.get_args(part)


def _union_members(of: Any) -> list[Any]:
    is_union = typing.get_origin(of) in (typing.Union, types.UnionType)
    return [underlying_type(each) for each in typing.get_args(of)] if is_union else []


def _resolve(model: Any) -> None:
    """Resolve the types that were not defined yet when a pydantic model was made. Raises: NameError if one is still not defined."""
    from pydantic.dataclasses import rebuild_dataclass

    model.model_rebuild() if hasattr(model, "model_rebuild") else rebuild_dataclass(model)


@cache
def _adapter(model: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(model)


def _from_plain(into: Any, value: Any) -> Any:
    """Return a value of the type `into`, which msgspec does not know, made from a plain value. Called by msgspec."""
    return _adapter(into).validate_python(value)


def _made_by_msgspec(into: Any, value: Any) -> Any:
    return msgspec.convert(value, into, dec_hook=_from_plain)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Raise the errors of the `with` block as ValueErrors that name the field: `$.price: expected float, got str`.

    The error has no traceback through pydantic or msgspec, because a log would show it for each bad record. Its cause is the error of user
    code, such as `__post_init__`, if there is one.
    """
    try:
        yield
    except msgspec.ValidationError as error:
        what, _, path = str(error).replace("`", "").partition(" - at ")
        raise ValueError(f"it is not a valid {name}: {path or '$'}: {what[:1].lower()}{what[1:]}") from error.__cause__
    except ValueError as error:
        if not hasattr(error, "errors"):  # Only errors of pydantic have this attribute.
            raise
        first, *others = error.errors(include_url=False)
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        more = f" (and {len(others)} more)" if others else ""
        raise ValueError(f"it is not a valid {name}: ${path}: {first['msg']}{more}") from None


def type_name(into: Any) -> str:
    """Return the name of a type for messages, such as `Payment | Refund`."""
    if typing.get_origin(into) is typing.Annotated:
        return type_name(typing.get_args(into)[0])
    if members := _union_members(into):
        return " | ".join(map(type_name, members))
    if into is type(None):
        return "None"
    return into.__name__ if isinstance(into, type) else str(into)


COLUMN_TYPE_KEY = "column"
"""The key in `msgspec.Meta.extra` under which an annotation names the column type of a field."""
MOST_DIGITS = 38
"""The most digits that a decimal can have in Spark, Arrow, Delta Lake and Iceberg."""
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def column_type(info: Any) -> str | None:
    """Return the column type that the annotation of a field names, in upper case, or None if it names none.

    `info`: the type of the field, as `msgspec.inspect` describes it.
    """
    if isinstance(info, inspect.UnionType):
        kinds = [kind for kind in info.types if not isinstance(kind, inspect.NoneType)]
        return column_type(kinds[0]) if len(kinds) == 1 else None
    if not isinstance(info, inspect.Metadata):
        return None
    named = (info.extra or {}).get(COLUMN_TYPE_KEY)
    return column_type(info.type) if named is None else str(named).upper()


def decimal_digits(column: str) -> tuple[int, int] | None:
    """Return precision and scale of a type such as `DECIMAL(12, 2)`, or None for another type.

    Raises: ValueError if precision or scale is not valid for a column.
    """
    if (found := _DECIMAL.fullmatch(column)) is None:
        return None
    precision, scale = int(found[1]), int(found[2] or 0)
    if not 1 <= precision <= MOST_DIGITS or scale > precision:
        raise ValueError(
            f"{column} is not a valid DECIMAL(precision, scale): the precision is 1 to {MOST_DIGITS}, and the scale at most the precision"
        )
    return precision, scale


def exact_decimal_converter(precision: int, scale: int) -> Callable[[Decimal], Decimal]:
    """Return a function that converts a number to one with exactly `scale` digits after the point.

    The function raises ValueError if it would have to round the number, or if the number is not finite.
    """
    digits = Context(prec=precision, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[InvalidOperation, Inexact])
    last_digit = Decimal(1).scaleb(-scale)

    def exact(value: Decimal) -> Decimal:
        try:
            fixed = value.quantize(last_digit, context=digits)
        except DecimalException as error:
            most = f"{precision - scale} digits before the point and {scale} after it"
            raise ValueError(f"{value!s:.100} has too many digits: at most {most}") from error
        if not fixed.is_finite():
            raise ValueError(f"{fixed} is not a finite number")
        return fixed

    return exact


class TypedField(NamedTuple):
    """A field of a type.

    - `name`: the name of the field in JSON.
    - `type`: the type of the field, as `msgspec.inspect` describes it.
    - `take`: a function that returns the value of the field in an object.
    """

    name: str
    type: Any
    take: Callable[[Any], Any]


def is_protobuf_message(of: Any) -> bool:
    """Return whether `of` is a Protobuf message, or a class of Protobuf messages."""
    return hasattr(of, "FromString") and hasattr(of, "DESCRIPTOR")


@lru_cache(1_000)  # A limit is needed, because the Glue Schema Registry makes classes while a job runs.
def fields_of_message(of: Any) -> list[TypedField]:
    """Return the fields of a class of Protobuf messages.

    A field that is not set has the value None if Protobuf tracks its presence (`optional`), and otherwise its default."""
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
    """Return the type of one value of a Protobuf field, and the function that converts the value for Python.

    An enum value becomes its name.
    """
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return inspect.StrType(), lambda number: names.get(number, str(number))
    if (message := field.message_type) is None:
        return (inspect.BytesType() if field.type == field.TYPE_BYTES else _PROTOBUF_SCALARS[field.cpp_type]), _as_it_is
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
_PROTOBUF_SCALARS = dict(
    enumerate((_INT, _INT, _INT, _INT, _FLOAT, _FLOAT, inspect.BoolType(), None, inspect.StrType()), 1)
)
"""Types by `FieldDescriptor.cpp_type`: signed and unsigned integers of 32 and 64 bits, double, float, bool, enum, text."""
