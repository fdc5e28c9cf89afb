"""Deserializers, which turn bytes into values, one batch at a time: bytes, text, JSON, and functions of the user.

`json_field_decoder` decodes one top-level field of JSON objects. Typed values are in `typed_values.py`.
"""

from __future__ import annotations

import inspect
import types
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Protocol, runtime_checkable

import msgspec

from ..publishers.errors import ConfigurationError, PluginError
from ..publishers.properties.properties import Properties
from ..publishers.records import Record, RecordBatch, V, V_co
from ..publishers.safe_text import counted, repr_of
from ..publishers.user_code import (
    PluginCall,
    add_note,
    as_plugin_error,
    check_user_function,
    describe_error,
    is_raised_in_user_code,
    refuse_unrun_results,
)
from .typed_values import Json, is_type

VALID_DESERIALIZER = (
    "a type that JSON is decoded into, rp.Json, rp.Avro or rp.Protobuf, or a plain function of a Record"
)


class Deserializer(Protocol[V_co]):
    """Turns the payloads of a batch into values.

    A registered deserializer is built once for a job, as `Name(properties)`. The optional attribute `makes` is the type of the values, from
    which a sink derives its columns. A deserializer that has to wait, for example for a schema, also has `async def prepare(batch)`
    (`PreparedDeserializer`).
    """

    @abstractmethod
    def values(self, batch: RecordBatch) -> Sequence[V_co] | None:
        """Return one value for each record, in the order of the records, or None if the values are the bytes themselves.

        This plain method is called in the event loop, so it must not block. If it raises for a batch, it is called for each record alone. A
        record for which it raises alone is a bad record, and `flink.deserializer.error` decides what happens to the record. A value must
        depend only on its record.

        The job ends if the result is not a sequence with one value for each record. It also ends after an error that says that a service
        was away (TransientError, RetriesExhaustedError), because that says nothing about the record.
        """


@runtime_checkable
class PreparedDeserializer(Protocol):
    """A deserializer that has to wait, for example for a schema from a registry, before it can turn a batch into values."""

    async def prepare(self, batch: RecordBatch) -> None:
        """Wait for everything that `values` needs for this batch. Any exception ends the job.

        Keep what the batch needs as long as the batch exists: `values` is called with one part of the batch at a time, and this method is
        called for other shards' batches in between. So keep it by what the records name, such as the id of a schema or a key, and not as
        "the last batch".
        """


class Decompressor(Protocol):
    """Decompresses the payloads of a batch.

    `replaces_data`: whether the sink also receives the decompressed payloads. If False, only the deserializer does.
    """

    replaces_data: bool

    def decompress(self, payloads: Sequence[bytes]) -> Sequence[bytes]:
        """Return one decompressed payload for each payload.

        A record whose payload alone makes this method raise is a bad (poisoned) record.
        """


class BytesDeserializer:
    """Uses the bytes of a record as its value. Built as `BytesDeserializer(properties)`, like every deserializer."""

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
        """Return the decoded text of each record."""
        return [data.decode() for data in batch.data]


class JsonDeserializer:
    """Decodes JSON documents with msgspec: dicts, lists, text, numbers."""

    makes: Any = dict | list | str | float | int | None

    def __init__(self, properties: Properties | None = None) -> None:
        self._decode = msgspec.json.Decoder().decode

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Return the decoded JSON document of each record."""
        return list(map(self._decode, batch.data))


_GOT_A_RECORD = 'the function got a Record: use deserializer="json", or lambda record: json.loads(record.data)'


class CallableDeserializer:
    """Calls a function of the user, which returns the value of a record.

    The function must be a plain one, because it is called in the event loop.

    Raises: ConfigurationError if the function is async or a generator.
    """

    def __init__(self, function: Callable[[Record], Any], setting: str = "deserializer") -> None:
        check_user_function(setting, function, VALID_DESERIALIZER, is_plain=True)
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

    Raises: the errors of the deserializer; PluginError if the deserializer returns something other than one value for each record.
    """
    values: Sequence[V] | None = call_for_items(deserializer, "values", "value", batch, or_none=True)
    return values


async def prepare_values(deserializer: PreparedDeserializer, batch: RecordBatch) -> None:
    """Call the deserializer's `prepare` for a batch.

    Raises: the errors of `prepare`, with a note that names the deserializer of another package; PluginError if `prepare` is not async.
    """
    if _is_ours(deserializer):
        return await deserializer.prepare(batch)
    with PluginCall(deserializer, "prepare", batch.shard.key):
        preparing: Any = deserializer.prepare(batch)
        if not inspect.isawaitable(preparing):
            name = f"{type(deserializer).__name__}.prepare"
            raise PluginError(f"`{name}` returned {repr_of(preparing)}: write `async def prepare`")
        await preparing


def call_for_items(
    plugin: object, method: str, what: str, batch: RecordBatch, given: Any = None, *, or_none: bool = False
) -> Any:
    """Return the result of a plugin's method for a batch: a sequence with one item for each record.

    - `what`: the name of an item in messages.
    - `given`: the argument of the method. If it is None, the argument is the batch.
    - `or_none`: whether the method may return None instead.

    Raises: the errors of the method; PluginError if the method returns something else, or raises a BaseException that is not an Exception.
    """
    try:  # A `PluginCall` would do the same, but it took a tenth of the time for a batch with one record.
        count = len(batch)
        result = getattr(plugin, method)(batch if given is None else given)
    except Exception as error:
        if isinstance(error, ConfigurationError) and is_raised_in_user_code(error, or_installed=True):
            add_note(error, f"{PluginCall(plugin, method).name} failed")
        raise
    except BaseException as error:
        if (replaced := as_plugin_error(error, PluginCall(plugin, method).name)) is None:
            raise
        raise replaced from error
    if (result is None and or_none) or (type(result) is list and len(result) == len(batch)):
        return result if _is_ours(plugin) else _checked(plugin, method, what, result, batch, count)
    # A set is refused, because it has no order that says which item belongs to which record.
    has_length = hasattr(result, "__len__") and not isinstance(result, (str, bytes, Mapping, Set))
    if has_length and len(result) == len(batch) and hasattr(result, "__getitem__"):
        return result if _is_ours(plugin) else _checked(plugin, method, what, result, batch, count)
    if isinstance(result, types.CoroutineType):
        result.close()  # Closed, because Python would also warn of a coroutine that never ran.
    is_sequence = has_length and hasattr(result, "__getitem__")
    returned = f"{len(result)} items" if is_sequence else f"a {type(result).__name__}"
    raise PluginError(
        f"`{type(plugin).__name__}.{method}` returned {returned} for {counted(len(batch), 'record')}: return a sequence with one "
        f"{what} for each record"
    )


def _is_ours(plugin: object) -> bool:
    return type(plugin).__module__.startswith("recordpublisher.")


def _checked(plugin: object, method: str, what: str, result: Any, batch: RecordBatch, count: int) -> Any:
    """Return the items that a plugin has made for a batch, or None if `result` is None. Lists are copied.

    - `method`: the method of the plugin that has made the items, for errors.
    - `what`: the kind of the items. "value" is for values of records. Every other kind is a time.
    - `count`: number of records that the batch had before the call.

    Raises: PluginError if the plugin has changed the batch, if a value is a coroutine or a generator, or if a time is not an int.
    """
    name = f"`{type(plugin).__name__}.{method}`"
    if not batch.has_all(count):
        raise PluginError(f"{name} has changed its batch: copy a column before you change it, as in `list(batch.data)`")
    if result is None or result is batch.event_times or result is batch.arrival_millis:
        return result
    if what == "value":
        try:
            refuse_unrun_results(result)
        except TypeError as error:  # As a TypeError it would be taken for that of a bad record.
            raise PluginError(f"{name}: {error}") from None
    elif others := set(map(type, result)) - {int}:
        raise PluginError(f"{name} returned the type {others.pop().__name__} as {what}: it must be epoch ms as an int")
    # A list is copied, because the plugin may fill the same list again for its next batch while this one waits for the sink.
    return tuple(result) if isinstance(result, (list, deque)) else result


class StreamDeserializer:
    """Deserializes the records of each stream with the deserializer that `by_stream` has for the stream's name."""

    def __init__(self, by_stream: Mapping[str, Deserializer]) -> None:
        self.by_stream = by_stream

    def check(self, streams: Iterable[str]) -> None:
        """Check that each stream of a job has a deserializer. Raises: ConfigurationError if a stream has none."""
        if missing := sorted(set(streams) - self.by_stream.keys()):
            few = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
            statement = f"has no entry for {'the streams' if len(missing) > 1 else 'the stream'} {few}"
            valid = "a mapping with a deserializer for each stream of the job"
            raise ConfigurationError("deserializer", valid=valid, statement=statement)

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Return the values that the deserializer of the batch's stream makes. Raises: ValueError if the stream has no deserializer."""
        if batch.stream not in self.by_stream:
            raise ValueError(
                f"there is no deserializer for the stream {batch.stream}: add one to the mapping `deserializer`"
            )
        return values_of(self.by_stream[batch.stream], batch)

    async def prepare(self, batch: RecordBatch) -> None:
        """Call `prepare` of the deserializer of the batch's stream, if it has that method."""
        deserializer: object = self.by_stream.get(batch.stream)
        if isinstance(deserializer, PreparedDeserializer):
            await prepare_values(deserializer, batch)


DeserializerArgument = type[V] | types.UnionType | Deserializer[V] | Callable[[Record], V] | str | Mapping[str, Any]
"""The values of the argument `deserializer`.

It may be a type that JSON is decoded into; an object such as `rp.Avro(...)`; a plain function of a Record; a name for `flink.deserializer`;
or a mapping with one of these for each stream.
"""


def deserializer_of(given: Any, setting: str = "deserializer") -> Deserializer:
    """Return the deserializer for the argument `deserializer`.

    The argument is a type that JSON is decoded into, an object with a method `values`, a function, or a mapping with one of these for each
    stream.

    Raises: ConfigurationError if `given` is none of these. The error names `setting`, and the stream if `given` is a mapping.
    """
    if is_type(given):
        return Json(given)
    if isinstance(given, Mapping) and given:
        return StreamDeserializer(
            {stream: deserializer_of(each, f"{setting}[{stream!r}]") for stream, each in given.items()}
        )
    has_values = callable(getattr(given, "values", None)) and not isinstance(given, Mapping)
    return given if has_values else CallableDeserializer(given, setting)


# `json_field_decoder` decodes one top-level field of JSON objects, and skips all other fields.


def json_field_decoder(setting: str, name: str, kind: Any, *default: Any) -> Callable[[bytes], Any]:
    """Return a decoder that reads one top-level field of a JSON object into the attribute `value` of its result.

    `name` and `kind` are the name of the field and the type of its value. If the field is missing, `value` is `default`. The decoder raises
    one of the errors in `UNDECODABLE` if `default` is not given, or if the payload is not valid.

    Raises: ConfigurationError that names `setting`, if the field's name contains characters that JSON must escape.
    """
    try:
        payload = msgspec.defstruct("Payload", [("value", kind, *default)], rename={"value": name}, gc=False)
    except ValueError as error:
        raise ConfigurationError(setting, name, "a name without quotes, backslashes and control characters") from error
    return msgspec.json.Decoder(payload).decode
