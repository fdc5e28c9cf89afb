"""Deserializers, which turn the payloads of a batch into values."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, DecimalException, Inexact, InvalidOperation
from functools import cache, lru_cache, partial
from operator import attrgetter, methodcaller
from typing import Any, Generic, NamedTuple, Protocol, runtime_checkable

import msgspec
from msgspec import inspect

from ..publishers.errors import ConfigurationError, PluginError
from ..publishers.log_fields import counted
from ..publishers.properties.properties import Properties
from ..publishers.records import Record, RecordBatch, V, V_co
from ..publishers.user_code import (
    PluginCall,
    as_plugin_error,
    check_user_function,
    describe_error,
    refuse_unrun_results,
)

VALID_DESERIALIZER = (
    "a type that JSON is decoded into, rp.Json, rp.Avro or rp.Protobuf, or a plain function of a Record"
)


class Deserializer(Protocol[V_co]):
    """Turns the payloads of a batch into values.

    A registered deserializer is built once for a job, as `Name(properties)`. It has an attribute `makes`, the type of its values, if sinks
    with columns should know it. One that has to wait, for example for a schema, also has `async def prepare(batch)`
    (`PreparedDeserializer`).
    """

    def values(self, batch: RecordBatch) -> Sequence[V_co] | None:
        """Return one value for each record, in their order, or None for the bytes themselves.

        This is a plain method, called in the event loop. If it raises, it is called again with each record of the batch alone. A record for
        which it then raises is a bad record, and `flink.deserializer.error` decides what happens to it. A value must depend on nothing but
        its record.

        If the result is not a sequence with one value for each record, the job ends.
        """


@runtime_checkable
class PreparedDeserializer(Protocol):
    """A deserializer that has to wait, for example for a schema from a registry, before it can turn a batch into values."""

    async def prepare(self, batch: RecordBatch) -> None:
        """Wait for everything that the batch needs. Any exception ends the job.

        `values` may be called for parts of the batch, because it is decompressed step by step. In between, this is called for batches of
        other shards. Keep what the batch needs as long as the batch exists.
        """


class Decompressor(Protocol):
    """Decompresses the payloads of a batch.

    `replaces_data`: whether users see the decompressed payload. If not, only the deserializer receives it.
    """

    replaces_data: bool

    def decompress(self, payloads: Sequence[bytes]) -> Sequence[bytes]:
        """Return one decompressed payload for each payload. If this raises for a record, it is a bad (poisoned) record."""


class BytesDeserializer:
    """Returns the bytes themselves. Built as `BytesDeserializer(properties)`, like every deserializer."""

    makes = bytes

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Return None, because the values are the bytes themselves."""
        return None


class TextDeserializer:
    """Decodes UTF-8 text."""

    makes = str

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Return the decoded texts."""
        return [data.decode() for data in batch.data]


class JsonDeserializer:
    """Decodes JSON documents with msgspec: dicts, lists, text, numbers."""

    makes: Any = dict | list | str | float | int | None

    def __init__(self, properties: Properties | None = None) -> None:
        self._decode = msgspec.json.Decoder().decode

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Return the decoded documents."""
        return list(map(self._decode, batch.data))


_GOT_A_RECORD = 'the function got a Record: use deserializer="json", or lambda record: json.loads(record.data)'


class CallableDeserializer:
    """Calls a function of the user, which returns the value of a record. It must be a plain function, because it is called in the event
    loop.

    Raises: ConfigurationError if the function is async or a generator.
    """

    def __init__(self, function: Callable[[Record], Any]) -> None:
        check_user_function("deserializer", function, VALID_DESERIALIZER, is_plain=True)
        self._function = function

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Return the function's result for each record. Raises: TypeError if a result is a coroutine or a generator."""
        try:
            # `map` is not used, because a StopIteration of the function would look like the end of the batch.
            values = [self._function(record) for record in batch]
        except TypeError as error:
            if "Record" not in (reason := describe_error(error)):
                raise
            raise TypeError(f"{reason.removeprefix('TypeError: ')}; {_GOT_A_RECORD}") from error
        refuse_unrun_results(values)
        return values


def values_of(deserializer: Deserializer[V], batch: RecordBatch) -> Sequence[V] | None:
    """Return the values of a batch.

    Raises: the errors of the deserializer; PluginError if the deserializer itself is wrong, whatever the record.
    """
    values: Sequence[V] | None = one_for_each(deserializer, "values", "value", batch, or_none=True)
    return values


def one_for_each(plugin: object, method: str, what: str, batch: RecordBatch, *, or_none: bool = False) -> Any:
    """Return what a plugin's method returns for a batch: a sequence with one item for each record; also None if `or_none`.

    `what` names an item, for messages. Raises: the errors of the method; PluginError if it returns something else, or raises an exception
    that is not an Exception.
    """
    try:  # A `PluginCall` would do the same, but it took a tenth of the time for a batch with one record.
        result = getattr(plugin, method)(batch)
    except Exception:
        raise
    except BaseException as error:
        if (replaced := as_plugin_error(error, PluginCall(plugin, method).name)) is None:
            raise
        raise replaced from error
    if (result is None and or_none) or (type(result) is list and len(result) == len(batch)):
        return result
    has_length = hasattr(result, "__len__") and not isinstance(result, (str, bytes, Mapping))
    if has_length and len(result) == len(batch):
        return result
    if isinstance(result, types.CoroutineType):
        result.close()  # Closed, because Python would also warn of a coroutine that never ran.
    returned = f"{len(result)} items" if has_length else f"a {type(result).__name__}"
    raise PluginError(
        f"`{type(plugin).__name__}.{method}` returned {returned} for {counted(len(batch), 'record')}: return a sequence with one "
        f"{what} for each record"
    )


class StreamDeserializer:
    """Uses another deserializer for each stream, by the stream's name."""

    def __init__(self, by_stream: Mapping[str, Deserializer]) -> None:
        self._by_stream = by_stream

    def check(self, streams: Iterable[str]) -> None:
        """Check that each stream of a job has a deserializer. Raises: ConfigurationError if one has none."""
        if missing := sorted(set(streams) - self._by_stream.keys()):
            valid = f"a deserializer for each stream, also {missing}"
            raise ConfigurationError("deserializer", sorted(self._by_stream), valid)

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Return the values, made by the deserializer of the batch's stream. Raises: ValueError if the stream has none."""
        if batch.stream not in self._by_stream:
            raise ValueError(f"there is no deserializer for the stream {batch.stream}")
        return values_of(self._by_stream[batch.stream], batch)

    async def prepare(self, batch: RecordBatch) -> None:
        """Wait for what the deserializer of the batch's stream needs."""
        deserializer: object = self._by_stream.get(batch.stream)
        if isinstance(deserializer, PreparedDeserializer):
            await deserializer.prepare(batch)


DeserializerArgument = type[V] | types.UnionType | Deserializer[V] | Callable[[Record], V] | str | Mapping[str, Any]
"""The values of the argument `deserializer`.

It may be a type that JSON is decoded into; an object such as `rp.Avro(...)`; a plain function of a Record; a name for `flink.deserializer`;
or a mapping with one of these for each stream.
"""


def deserializer_of(given: Any) -> Deserializer:
    """Return the deserializer for the argument `deserializer`.

    The argument is a type that JSON is decoded into, an object with a method `values`, a function, or a mapping with one of these for each
    stream.

    Raises: ConfigurationError if it is none of these.
    """
    if is_type(given):
        return Json(given)
    if isinstance(given, Mapping) and given:
        return StreamDeserializer({stream: deserializer_of(each) for stream, each in given.items()})
    has_values = callable(getattr(given, "values", None)) and not isinstance(given, Mapping)
    return given if has_values else CallableDeserializer(given)


# Json decodes JSON into dataclasses, msgspec Structs, pydantic models and other classes, and checks the types. Functions turn such values
# back into plain ones.

VALID = "a dataclass, msgspec.Struct, TypedDict, NamedTuple, attrs class, pydantic model, or list[...] and such of them"

# typing has TypeAliasType since Python 3.12.
_NAMED = (typing.NewType, *filter(None, [getattr(typing, "TypeAliasType", None)]))
_MARKS = ("__struct_fields__", "__dataclass_fields__", "__attrs_attrs__", "__pydantic_validator__")


class Json(Generic[V]):
    """JSON documents, decoded into `into` and checked: `Json(Order)`, `Json(list[Order])`.

    `into` is a type that msgspec decodes (dataclasses, Structs, TypedDict, NamedTuple, attrs classes, tagged unions), or a pydantic
    model, or a type that contains some. With `strict=False` the text "1" is accepted where a number is expected. Pydantic models set
    this in their own configuration.

    Raises: ConfigurationError if JSON cannot be decoded into the type.
    """

    def __init__(self, into: type[V] | types.UnionType, *, strict: bool = True) -> None:
        self.into = into = without_name(into)
        self._name = name_of(into)
        self._decode = _decoder(into, strict)

    def values(self, batch: RecordBatch) -> Sequence[V] | None:
        """Return the decoded documents. Raises: ValueError that says in which field a record differs from the type."""
        with _explained(self._name):
            return list(map(self._decode, batch.data))


def converter_into(into: type[V] | types.UnionType) -> Callable[[Any], V]:
    """Return a function that turns plain values, such as Avro's, into `into`. The function raises ValueError if a value differs from the
    type.

    Raises: ConfigurationError if JSON cannot be decoded into the type.
    """
    _decoder(into, True)
    make: Any = partial(_from_plain if _is_of_pydantic(into) else _made_by_msgspec, into)

    def convert(value: Any) -> V:
        with _explained(name_of(into)):
            converted: V = make(value)
        return converted

    return convert


def is_type(given: object) -> bool:
    """Return whether `given` is a class, or a form such as `list[Order]`, `Order | Refund` or a `NewType`."""
    is_form = isinstance(given, (type, types.UnionType, types.GenericAlias)) or typing.get_origin(given) is not None
    return is_form or without_name(given) is not given


def without_name(given: Any) -> Any:
    """Return the type for which a `NewType` or a `type` statement is another name, and anything else unchanged."""
    while isinstance(given, _NAMED):
        given = given.__supertype__ if isinstance(given, typing.NewType) else given.__value__
    return given


def has_fields(value: Any) -> bool:
    """Return whether `value` is a dataclass, a Struct, an attrs class, a pydantic model or a Protobuf message."""
    return any(hasattr(value, name) for name in _MARKS) or is_message(value)


def fields_of(info: Any) -> list[TypedField] | None:
    """Return the fields of a type that `msgspec.inspect` describes, in the order of the class.

    Return None for a type without fields, such as a number or a list.
    """
    if isinstance(info, inspect.CustomType) and _is_of_pydantic(info.cls):
        fields = info.cls.model_fields.items()  # type: ignore[attr-defined]
        return [TypedField(name, inspect.type_info(field.annotation), attrgetter(name)) for name, field in fields]
    if isinstance(info, inspect.CustomType) and is_message(info.cls):
        return fields_of_message(info.cls)
    if not isinstance(info, (inspect.TypedDictType, inspect.StructType, inspect.DataclassType, inspect.NamedTupleType)):
        return None
    take: Any = partial(methodcaller, "get") if isinstance(info, inspect.TypedDictType) else attrgetter
    # The order of the class is restored, because msgspec puts fields without a default first.
    written = list(typing.get_type_hints(typing.get_origin(info.cls) or info.cls))
    fields = sorted(info.fields, key=lambda field: written.index(field.name) if field.name in written else len(written))
    return [TypedField(field.encode_name, field.type, take(field.name)) for field in fields]


def without_none(info: Any) -> Any:
    """Return the type without None, for a value that may also be None.

    A union of int and float becomes float. Other unions stay as they are.
    """
    if isinstance(info, inspect.Metadata):
        return without_none(info.type)
    if not isinstance(info, inspect.UnionType):
        return info
    kinds = [kind for kind in info.types if not isinstance(kind, inspect.NoneType)]
    if set(map(type, kinds)) == {inspect.IntType, inspect.FloatType}:
        return inspect.FloatType()
    return without_none(kinds[0]) if len(kinds) == 1 else info


def constants_of(info: Any) -> list[Any] | None:
    """Return the values of an Enum or a Literal, or None for another type."""
    if isinstance(info, inspect.EnumType):
        return [member.value for member in info.cls]
    return list(info.values) if isinstance(info, inspect.LiteralType) else None


def plain_value(value: Any) -> Any:
    """Return a typed value as the plain values of JSON: dicts, lists, texts, numbers. Raises: TypeError if it has no such form."""
    return msgspec.to_builtins(with_all_fields(value), enc_hook=fields_of_model)


_SCALARS = frozenset({str, int, float, bool, bytes, type(None)})


def with_all_fields(value: Any) -> Any:
    """Return the value, with a dict of all fields instead of each dataclass, Struct and attrs class inside it.

    msgspec itself leaves out fields that have their default: those of a dataclass that it has decoded, because only the class has them, and
    those of a Struct with `omit_defaults`.
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
    """Return the tag of a class, and for each field its name in JSON and in Python; None for a class that msgspec writes with all
    fields.
    """
    if issubclass(of, msgspec.Struct):
        config, renamed = of.__struct_config__, zip(of.__struct_encode_fields__, of.__struct_fields__, strict=True)
        tag = {} if config.tag is None else {config.tag_field: config.tag}
        return None if config.array_like else (tag, list(renamed))
    attributes = [field.name for field in getattr(of, "__attrs_attrs__", ())]
    names = attributes or ([field.name for field in dataclasses.fields(of)] if dataclasses.is_dataclass(of) else [])
    has_fields = bool(names) and not _is_of_pydantic(of)
    return ({}, [(name, name) for name in names if not name.startswith("_")]) if has_fields else None


def fields_of_model(value: Any) -> Any:
    """Return the fields of a pydantic model or a Protobuf message, as JSON has them. Raises: TypeError if the value is neither."""
    if _is_of_pydantic(type(value)):
        model: Any = type(value)
        return _adapter(model).dump_python(value, mode="json")
    if is_message(value):
        message: Any = type(value)
        return {field.name: field.take(value) for field in fields_of_message(message)}
    raise TypeError(f"a value of the type {type(value).__name__} cannot be written as JSON")


def _decoder(into: Any, strict: bool) -> Callable[[bytes], Any]:
    try:
        if _is_of_pydantic(into):
            _resolve(into)
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


def _remedy(stranger: Any) -> str:
    name = getattr(stranger, "__name__", stranger)
    if is_message(stranger):
        return f"{name} is a Protobuf message: use rp.Protobuf({name})"
    if _is_of_pydantic(stranger):
        return (
            f"{name} is a dataclass of pydantic, which would not be validated inside another type: make it a BaseModel"
        )
    return f"{name} is a class whose fields are not known here: give a function of a Record that makes one"


def _custom_types(info: Any) -> Iterator[Any]:
    """Yield the classes inside a type that msgspec does not know. Dataclasses of pydantic are among them, because msgspec makes them
    without pydantic.
    """
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


def _resolve(model: Any) -> None:
    """Resolve the types that were not defined yet when a pydantic model was made. Raises: NameError if one is still not defined."""
    from pydantic.dataclasses import rebuild_dataclass

    model.model_rebuild() if hasattr(model, "model_rebuild") else rebuild_dataclass(model)


@cache
def _adapter(model: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(model)


def _from_plain(into: Any, value: Any) -> Any:
    """Make a value of a type that msgspec does not know. msgspec calls this."""
    return _adapter(into).validate_python(value)


def _made_by_msgspec(into: Any, value: Any) -> Any:
    return msgspec.convert(value, into, dec_hook=_from_plain)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Raise the errors of the `with` block as ValueErrors that name the field: `$.price: expected float, got str`."""
    try:
        yield
    except msgspec.ValidationError as error:
        what, _, path = str(error).replace("`", "").partition(" - at ")
        raise ValueError(f"it is not a valid {name}: {path or '$'}: {what[:1].lower()}{what[1:]}") from error
    except ValueError as error:
        if not hasattr(error, "errors"):  # Only errors of pydantic have this attribute.
            raise
        first, *others = error.errors(include_url=False)
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        more = f" (and {len(others)} more)" if others else ""
        raise ValueError(f"it is not a valid {name}: ${path}: {first['msg']}{more}") from error


def name_of(into: Any) -> str:
    """Return a type's name for messages."""
    return into.__name__ if isinstance(into, type) else str(into)


# column_type reads the column type that a field names: `Annotated[Decimal, msgspec.Meta(extra={"column": "DECIMAL(12, 2)"})]`.

COLUMN = "column"
"""The key of the column type in `msgspec.Meta.extra`."""
MOST_DIGITS = 38
"""The most digits that a decimal can have in Spark, Arrow, Delta Lake and Iceberg."""
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def column_type(info: Any) -> str | None:
    """Return the column type that a field names, in upper case; None if it names none. `info` is from `msgspec.inspect`."""
    if isinstance(info, inspect.UnionType):
        kinds = [kind for kind in info.types if not isinstance(kind, inspect.NoneType)]
        return column_type(kinds[0]) if len(kinds) == 1 else None
    if not isinstance(info, inspect.Metadata):
        return None
    named = (info.extra or {}).get(COLUMN)
    return column_type(info.type) if named is None else str(named).upper()


def decimal_digits(column: str) -> tuple[int, int] | None:
    """Return precision and scale of a type such as `DECIMAL(12, 2)`; None for another type.

    Raises: ValueError if no table can have a column with them.
    """
    if (found := _DECIMAL.fullmatch(column)) is None:
        return None
    precision, scale = int(found[1]), int(found[2] or 0)
    if not 1 <= precision <= MOST_DIGITS or scale > precision:
        raise ValueError(
            f"{column} is not DECIMAL(precision, scale) with 1 to {MOST_DIGITS} digits, and no more after the point"
        )
    return precision, scale


def exact_decimal_converter(precision: int, scale: int) -> Callable[[Decimal], Decimal]:
    """Return a function that returns a number with exactly `scale` digits after the point.

    The function raises ValueError if it would have to round the number, or if the number is not finite.
    """
    digits = Context(prec=precision, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[InvalidOperation, Inexact])
    last_digit = Decimal(1).scaleb(-scale)

    def exact(value: Decimal) -> Decimal:
        try:
            fixed = value.quantize(last_digit, context=digits)
        except DecimalException as error:
            most = f"{precision - scale} digits before the point, or {scale} after it"
            raise ValueError(f"{value!s:.100} has too many digits: at most {most}") from error
        if not fixed.is_finite():
            raise ValueError(f"{fixed} is not a finite number")
        return fixed

    return exact


# Reads the fields of Protobuf messages from their descriptors. Types are as in `msgspec.inspect`, and values are Python's.


class TypedField(NamedTuple):
    """A field of a type.

    - `name`: its name in JSON.
    - `type`: its type as `msgspec.inspect` describes it.
    - `take`: a function that returns the field of a value.
    """

    name: str
    type: Any
    take: Callable[[Any], Any]


def is_message(of: Any) -> bool:
    """Return whether `of` is a message, or a class of messages."""
    return hasattr(of, "FromString") and hasattr(of, "DESCRIPTOR")


@lru_cache(1_000)  # A limit is needed, because the Glue Schema Registry makes classes while a job runs.
def fields_of_message(of: Any) -> list[TypedField]:
    """Return the fields of a class of Protobuf messages. The value of a field that is not set is None, if the message records whether it
    is set.
    """
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
    """Return the type of one value of a field, and the function that returns Python's value of it. An enum value becomes its name, as in
    JSON.
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


# json_field decodes one top-level field of JSON objects, and skips all other fields.


def json_field(setting: str, name: str, kind: Any, *default: Any) -> Callable[[bytes], Any]:
    """Return a decoder of payloads. Its result has the field as `value`; without the field, it has the default if one is given. It
    raises `UNDECODABLE`.

    Raises: ConfigurationError that names the setting, if JSON would have to escape the field's name.
    """
    try:
        payload = msgspec.defstruct("Payload", [("value", kind, *default)], rename={"value": name}, gc=False)
    except ValueError as error:
        raise ConfigurationError(setting, name, "a name without quotes, backslashes and control characters") from error
    return msgspec.json.Decoder(payload).decode
