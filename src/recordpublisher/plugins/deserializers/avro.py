"""Avro: decodes records, and turns a schema file into the type of rows. Needs the extra `avro`."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from datetime import date, datetime, time
from pathlib import Path
from types import UnionType
from typing import Any, Generic, Literal
from uuid import UUID

from recordpublisher.consumer.typed_values import converter_into
from recordpublisher.install_commands import install_command
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.job_properties import AVRO_SCHEMA
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch, V

from .row_types import PLAIN, SchemaField, decimal_annotation, list_of, map_of, object_type

try:
    import fastavro
    from fastavro import _read_py
except ImportError as error:
    raise ImportError(f"Avro needs the extra 'avro': {install_command('avro')}") from error


MAX_SCHEMA_DEPTH = 100
MOST_VALUES = 100_000
"""Most values of a record. A schema of 40 nested records, each with two fields of the next one, has a trillion values in every record."""
MAX_DECIMAL_BYTES = 4_096
"""Most bytes of a decimal. The time for its conversion grows with the square of its digits."""
_PARSED, _NAMED = "__fastavro_parsed", "__named_schemas"
_DECIMAL = "recordpublisher-decimal"
_PLAIN_TYPES: dict[str, Any] = {
    "boolean": bool, "int": PLAIN["INT"], "long": PLAIN["BIGINT"], "float": PLAIN["FLOAT"], "double": float,
    "bytes": bytes, "fixed": bytes, "string": str,
}  # fmt: skip
_LOGICAL: dict[str, Any] = {
    "date": date, "time-millis": time, "time-micros": time, "timestamp-millis": datetime, "timestamp-micros": datetime,
    "uuid": UUID,
}  # fmt: skip


class Avro(Generic[V]):
    """Decodes records that are one Avro value each, in the binary encoding without a header: `Avro(schema)`, or `Avro(schema, Order)`.

    - `schema`: JSON, as text or as the object that `json.loads` returns.
    - `into`: the type of the values (see `Json`). Without it, an Avro record becomes a dict.

    Raises: ConfigurationError if the schema or the type cannot be used for decoding.
    """

    def __init__(self, schema: str | dict[str, Any] | list[Any], into: type[V] | UnionType | None = None) -> None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        try:
            self._schema = parse_schema(text)
        except ValueError as error:
            raise ConfigurationError("schema", text, "an Avro schema as JSON", reason=str(error)) from error
        self.into = into
        self._convert = None if into is None else converter_into(into)

    def values(self, batch: RecordBatch) -> Sequence[V] | None:
        """Return the decoded values. Raises: ValueError if a record does not fit the schema or the type."""
        values = [decode(data, self._schema) for data in batch.data]
        return values if self._convert is None else list(map(self._convert, values))


class AvroDeserializer(Avro[Any]):
    """Decodes each record with the schema of `flink.deserializer.avro.schema`. Raises: ConfigurationError if it is missing or not valid."""

    def __init__(self, properties: Properties) -> None:
        schema = schema_of(properties)
        if schema is None:
            raise ConfigurationError(AVRO_SCHEMA.key, None, _VALID, reason="flink.deserializer=avro needs it")
        self._schema, self.into, self._convert = schema, None, None


_VALID = "an Avro schema as JSON, or the path of a file with one"
_BEGIN_OF_JSON = ("{", "[", '"')
"""The first characters of a schema in JSON: an object, a list or a text. A text that begins differently is the path of a schema file."""


def schema_of(properties: Properties) -> AvroSchema | None:
    """Return the schema of `flink.deserializer.avro.schema`, or None if it is not set. Raises: ConfigurationError if it is invalid."""
    given = properties.value(AVRO_SCHEMA)
    if given is None:
        return None
    try:
        return parse_schema(schema_text(given))
    except (OSError, ValueError) as error:
        raise ConfigurationError(AVRO_SCHEMA.key, given, _VALID, reason=str(error)) from error


def schema_text(given: str) -> str:
    """Return a schema as JSON. `given` is the JSON itself, or the path of a file that has it.

    Raises: OSError if the file cannot be read.
    """
    return given if given.lstrip().startswith(_BEGIN_OF_JSON) else Path(given).read_text(encoding="utf-8")


def parse_schema(text: str | None) -> AvroSchema:
    """Return a schema from its JSON.

    Raises: ValueError if the schema is not valid, or if even a small record could decode to a value that is too large or nested too deeply.
    """
    try:
        return AvroSchema(fastavro.parse_schema(json.loads(text or "")))
    except (ValueError, KeyError, TypeError, RecursionError, fastavro.schema.SchemaParseException) as error:
        raise ValueError(_reason(error)) from error


def _reason(error: Exception) -> str:
    """Return why a schema is not valid."""
    if isinstance(error, KeyError):  # fastavro looks up what the schema lacks.
        return f"the schema, or a part of it, has no {error}"
    return f"{type(error).__name__}: {error}"


def decode(data: bytes, schema: AvroSchema, reader_schema: AvroSchema | None = None) -> Any:
    """Return the value that was written with `schema`, resolved to `reader_schema` if one is given.

    Raises: ValueError if the bytes do not fit the schema, or if bytes are left after the value.
    """
    stream = io.BytesIO(data)
    # The reader in C would overflow the stack on a recursive value, for which the reader in Python raises RecursionError.
    read = _read_py.schemaless_reader if schema.is_recursive else fastavro.schemaless_reader
    try:
        if schema.begins_with_index:
            _check_index(data)
        value = read(stream, schema.definition, None if reader_schema is None else reader_schema.definition)
    except Exception as error:  # fastavro does not document which errors it raises for bytes that do not fit.
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise ValueError(
            f"the record does not fit the Avro schema: decoding failed after {stream.tell()} of {len(data)} bytes: {reason}"
        ) from error
    if stream.tell() != len(data):
        raise ValueError(
            f"the record does not fit the Avro schema: the value ends after {stream.tell()} of {len(data)} bytes"
        )
    return value


def _check_index(data: bytes) -> None:
    if data and data[0] & 1:  # The lowest bit is the sign of a number.
        raise IndexError("the index of a union or an enum is negative")


class AvroSchema:
    """A parsed schema with which untrusted bytes can be decoded safely.

    fastavro's reader in C recurses without a limit, accepts negative indexes, and makes as many empty items as a record demands. Therefore:

    - The reader in Python decodes recursive schemas.
    - Indexes and decimals are checked.
    - Arrays whose items need no bytes are refused.
    """

    def __init__(self, parsed: Any) -> None:
        """Check the schema.

        Raises: ValueError in these cases:

        - The schema is nested too deeply.
        - Every record has more than `MOST_VALUES` values.
        - The items of an array need no bytes.
        """
        self._named: dict[str, Any] = {}
        self._open: set[str] = set()
        self._values: dict[str, int] = {}
        """The number of values that each record always has, including those of nested records, by the name of the record's type."""
        self.is_recursive = False
        self.begins_with_index = isinstance(parsed, list)
        """Whether values begin with the index of a union's branch.

        If so, `decode` checks the index, because fastavro copies the list of branches.
        """
        checked = self._checked(parsed, 0)
        self.definition = list(map(self._kept, checked)) if self.begins_with_index else self._kept(checked)

    def _kept(self, checked: Any) -> Any:
        """Return the checked schema, marked as parsed and with its named types. Otherwise fastavro would copy it at each call."""
        return checked if isinstance(checked, str) else {**checked, _PARSED: True, _NAMED: self._named}

    def _checked(self, schema: Any, depth: int) -> Any:
        if depth > MAX_SCHEMA_DEPTH:
            raise ValueError(f"the schema is nested more than {MAX_SCHEMA_DEPTH} levels deep")
        if isinstance(schema, str):
            self.is_recursive |= schema in self._open
            return schema
        if isinstance(schema, list):
            return _Indexed(self._checked(branch, depth + 1) for branch in schema)
        checked = {key: value for key, value in schema.items() if key not in (_PARSED, _NAMED)}
        name = checked.get("name", "")
        self._named[name] = checked
        self._open.add(name)
        self._check_inside(checked, depth)
        self._open.discard(name)
        return checked

    def _check_inside(self, schema: dict[str, Any], depth: int) -> None:
        kind = schema["type"]
        if "fields" in schema:
            schema["fields"] = [
                {**field, "type": self._checked(field["type"], depth + 1)} for field in schema["fields"]
            ]
            self._values[schema["name"]] = values = 1 + sum(
                self._values_of(field["type"]) for field in schema["fields"]
            )
            if values > MOST_VALUES:
                raise ValueError(
                    f"every record {schema['name']} has more than {MOST_VALUES} values, which is not accepted, because even a few bytes "
                    "would need much memory"
                )
        for part in ("items", "values"):
            if part in schema:
                schema[part] = self._checked(schema[part], depth + 1)
        # A block of items without bytes is only a count, so a few bytes of a record could demand any amount of memory.
        if kind == "array" and self._may_be_empty(schema["items"], 0):
            raise ValueError(
                "the schema has an array whose items need no bytes, which is not accepted, because a few bytes could fill the memory"
            )
        if kind == "enum":
            schema["symbols"] = _Indexed(schema["symbols"])
        if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
            schema["logicalType"] = _DECIMAL

    def _values_of(self, schema: Any) -> int:
        name = schema.get("name", "") if isinstance(schema, dict) else schema
        return self._values.get(name, 1) if isinstance(name, str) else 1

    def _may_be_empty(self, schema: Any, depth: int) -> bool:
        """Return whether a value may be encoded without any byte.

        - `depth`: how many schemas contain this one. If it is above `MAX_SCHEMA_DEPTH`, only "null" counts as empty.
        """
        if isinstance(schema, str):
            schema = self._named.get(schema, schema)
        if not isinstance(schema, dict) or depth > MAX_SCHEMA_DEPTH:
            return bool(schema == "null")
        if "fields" in schema:
            return all(self._may_be_empty(field["type"], depth + 1) for field in schema["fields"])
        return schema.get("size") == 0 or schema["type"] == "null"


class _Indexed(list[Any]):
    """A list that refuses negative indexes, for a union's branches or an enum's symbols.

    Its length is 0. The reader in C adds the length to a negative index, and would otherwise make it valid.
    """

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, int) or index < 0:
            raise IndexError(f"a union or an enum has no index {index}")
        return super().__getitem__(index)

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True


def _read_decimal(data: bytes, writer_schema: Any = None, reader_schema: Any = None) -> Any:
    """Return a decimal, decoded by fastavro. Raises: ValueError if it has more bytes than its precision needs."""
    digits = writer_schema["precision"]
    most = MAX_DECIMAL_BYTES
    if writer_schema["type"] == "bytes":
        most = min(most, math.ceil((digits * math.log2(10) + 1) / 8))
    if len(data) > most:
        raise ValueError(f"a decimal of {digits} digits has {len(data)} bytes, more than {most}")
    return _LIBRARY_DECIMAL(data, writer_schema, reader_schema)


_LIBRARY_DECIMAL = fastavro.read.LOGICAL_READERS["bytes-decimal"]


def avro_file_text(path: str) -> str:
    """Return the schema of a file as JSON. Named types may be in files next to this one, such as `shop.Address.avsc`.

    Raises: ValueError if the schema is not valid; OSError if the file cannot be read.
    """
    try:
        Path(path).stat()  # The error of fastavro says less about a missing file.
        schema = fastavro.schema.load_schema(path)
    except (
        KeyError,
        TypeError,
        RecursionError,
        fastavro.schema.SchemaParseException,
        fastavro.repository.SchemaRepositoryError,
    ) as error:
        raise ValueError(_reason(error)) from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("the schema of a row must be a record")
    return json.dumps({key: value for key, value in schema.items() if key not in (_PARSED, _NAMED)})


def type_of_avro_schema(document: dict[str, Any]) -> Any:
    """Return the type of rows for the Avro schema `document`.

    Raises: ValueError if the schema is not valid, or has a type for which no column exists.
    """
    named: dict[str, Any] = {}
    try:
        schema = fastavro.parse_schema(document, named_schemas=named)
    except (KeyError, TypeError, RecursionError, fastavro.schema.SchemaParseException) as error:
        raise ValueError(_reason(error)) from error
    return _RowTypes(named).type_of(schema, "$", ())


for _kind in ("bytes", "fixed"):
    fastavro.read.LOGICAL_READERS[f"{_kind}-{_DECIMAL}"] = _read_decimal


class _RowTypes:
    """Turns Avro schemas into types of rows. It remembers named schemas, because later schemas may refer to them by name."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named

    def type_of(self, schema: Any, place: str, inside: tuple[str, ...]) -> Any:
        """Return the type for a schema.

        - `place`: the path of the field, such as `$.address.country`.
        - `inside`: the names of the records that contain the field.

        Raises: ValueError if no column exists for the schema.
        """
        if isinstance(schema, list):
            return self._union(schema, place, inside)
        if isinstance(schema, str):
            return _PLAIN_TYPES[schema] if schema in _PLAIN_TYPES else self._named_type(schema, place, inside)
        kind, logical = schema["type"], schema.get("logicalType")
        if logical == "decimal":
            return decimal_annotation(schema["precision"], schema.get("scale", 0))
        if (known := _LOGICAL.get(logical) or self._nested(kind, schema, place, inside)) is not None:
            return known
        return self.type_of(kind, place, inside)

    def _nested(self, kind: Any, schema: dict[str, Any], place: str, inside: tuple[str, ...]) -> Any:
        if kind in ("record", "error"):
            return self._record(schema, place, inside)
        if kind == "enum":
            return Literal[tuple(schema["symbols"])]
        if kind == "array":
            return list_of(self.type_of(schema["items"], f"{place}[]", inside))
        return map_of(str, self.type_of(schema["values"], f"{place}[]", inside)) if kind == "map" else None

    def _named_type(self, name: str, place: str, inside: tuple[str, ...]) -> Any:
        if name not in self._named:
            raise ValueError(f"{place} is {name}, for which no column exists")
        return self.type_of(self._named[name], place, inside)

    def _record(self, schema: dict[str, Any], place: str, inside: tuple[str, ...]) -> Any:
        name = schema["name"]
        if name in inside:
            raise ValueError(f"{place} is a {name} that contains itself; no column can have a recursive type")
        fields = [
            SchemaField(field["name"], self.type_of(field["type"], f"{place}.{field['name']}", (*inside, name)))
            for field in schema["fields"]
        ]
        return object_type(fields, name.rpartition(".")[2]) if inside else object_type(fields)

    def _union(self, schema: list[Any], place: str, inside: tuple[str, ...]) -> Any:
        kinds = [kind for kind in schema if kind != "null"]
        if len(kinds) != 1:
            raise ValueError(f"{place} is a union of several types, which no column can hold")
        of = self.type_of(kinds[0], place, inside)
        return of | None if len(kinds) < len(schema) else of
