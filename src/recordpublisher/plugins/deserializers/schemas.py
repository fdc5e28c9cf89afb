"""Schemas without a Python class: turns `flink.deserializer.schema` into the type of the values, or infers columns from JSON.

With `flink.deserializer.schema = INFER`, a *shape* describes the type of a value as far as it is known:

- the name of a plain type, such as `BIGINT`;
- a list with one item, the shape of a list's items;
- a dict with the shape of each field of an object;
- a pair with the shapes of keys and values of a map, which only a table can have;
- None if nothing is known yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

import msgspec

from recordpublisher.consumer.deserialization import (
    Deserializer,
    JsonDeserializer,
    PreparedDeserializer,
    prepare_values,
)
from recordpublisher.consumer.typed_values import converter_into
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.job_properties import AVRO_SCHEMA, SCHEMA
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch

from .row_types import parse_columns, type_of_json_schema

VALID = "columns such as id BIGINT, at TIMESTAMP, tags ARRAY<STRING>; or the path of a file .avsc, or .json (JSON Schema), or its content"
Shape = Any
LARGE_INTEGER_TYPE = "DECIMAL(38, 0)"
"""The column of whole numbers if one of them has more than 64 bits."""
_WIDER = {
    frozenset({"BIGINT", "DOUBLE"}): "DOUBLE",
    frozenset({"BIGINT", LARGE_INTEGER_TYPE}): LARGE_INTEGER_TYPE,
    frozenset({LARGE_INTEGER_TYPE, "DOUBLE"}): "DOUBLE",
}
_KINDS = {NoneType: None, bool: "BOOLEAN", float: "DOUBLE", str: "STRING"}
_NOT_IN_NAMES = {"`", '"', "\\"}
"""Characters that the name of a column may not have. A backtick ends a name in a schema. The others are escaped in JSON, and msgspec does
not find a field by such a name.
"""
_MOST_LEVELS = 32


def schema_type(properties: Properties) -> Any:
    """Return the type of rows of `flink.deserializer.schema`, or None if it is not set.

    Raises: ConfigurationError, naming the faulty place, if the schema is invalid.
    """
    if is_inferred(properties):
        return InferColumns
    if (given := properties.value(SCHEMA)) is None:
        return None
    try:
        return _type_of(given)
    except _INVALID as error:
        raise ConfigurationError(SCHEMA.key, given, VALID, reason=str(error)) from error


def is_inferred(properties: Properties) -> bool:
    """Return whether `flink.deserializer.schema` is INFER. With INFER, a sink infers its columns from the data."""
    return (properties.value(SCHEMA) or "").strip().upper() == "INFER"


_INVALID = (OSError, ValueError, RecursionError, TypeError, LookupError)


def _type_of(given: str) -> Any:
    if not (_is_file(given) or given.lstrip().startswith("{")):
        return parse_columns(given)
    document = msgspec.json.decode(_text_of(given))
    if not isinstance(document, dict) or document.get("type") != "record":
        return type_of_json_schema(document)
    from .avro import type_of_avro_schema  # Imported here because it needs the extra `avro`.

    return type_of_avro_schema(document)


def _is_file(given: str) -> bool:
    return given.lower().endswith((".avsc", ".json"))


def _text_of(given: str) -> str:
    if not _is_file(given):
        return given
    if given.lower().endswith(".json"):
        return Path(given).read_text(encoding="utf-8")
    from .avro import avro_file_text

    return avro_file_text(given)


def with_schema_texts(given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties for processes on other machines: each path of a schema file is replaced by the file's content.

    Raises: ConfigurationError if a file cannot be read.
    """
    made = dict(given)
    for key, value in given.items():
        try:
            if key.lower() == SCHEMA.key:
                made[key] = _text_of(value)
            elif key.lower() == AVRO_SCHEMA.key:
                from .avro import schema_text

                made[key] = schema_text(value)
        except _INVALID as error:
            raise ConfigurationError(key, value, "a file that this process can read", reason=str(error)) from error
    return made


class ConvertedValues:
    """Converts the dicts of another deserializer, such as Avro's, into rows of the schema."""

    def __init__(self, values: Deserializer[Any], into: Any) -> None:
        self._values, self.into = values, into
        self._convert = converter_into(into)
        self.decompressor = getattr(values, "decompressor", None)

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Return the rows. Raises: ValueError, naming the field, if a record does not fit the schema."""
        made = self._values.values(batch)
        return list(map(self._convert, batch.data if made is None else made))

    async def prepare(self, batch: RecordBatch) -> None:
        """Let the wrapped deserializer prepare for the batch."""
        if isinstance(self._values, PreparedDeserializer):
            await prepare_values(self._values, batch)


class InferColumns(dict[str, Any]):
    """The type that tells a sink to infer its columns from the data. The values themselves are dicts."""


class InferredJson(JsonDeserializer):
    """Decodes JSON objects for a sink that infers its columns from them."""

    makes = InferColumns

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Return the objects. Raises: ValueError if a document is not an object."""
        values = super().values(batch) or ()
        for value in values:
            if not isinstance(value, dict):
                kind = type(value).__name__
                raise ValueError(  # noqa: TRY004 - a value in a record
                    f"the value is of the type {kind}: it must be an object, because its fields become the columns"
                )
        return values


def shape_of(value: Any, level: int = 0) -> Shape:
    """Return the shape of a JSON value.

    Every text is a STRING, even if it looks like a time. The next text of the same field may not be a time.

    Raises: ValueError if the value is nested too deeply.
    """
    kind = type(value)
    if kind in _KINDS:
        return _KINDS[kind]
    if kind is int:
        return "BIGINT" if -(2**63) <= value < 2**63 else LARGE_INTEGER_TYPE
    if level > _MOST_LEVELS:
        raise ValueError(f"the value is nested more than {_MOST_LEVELS} levels deep")
    if kind is dict:
        return {name: shape_of(item, level + 1) for name, item in value.items()}
    items: Shape = None
    for item in value:
        items = merge_shapes(items, shape_of(item, level + 1))
    return [items]


def merge_shapes(first: Shape, second: Shape) -> Shape:
    """Return the shape into which the values of both shapes fit.

    If there is none, return `first`. Return `second` instead if no part of `first` is known, because only nulls, empty lists and empty
    objects were seen.
    """
    if first is None or second is None or first == second:
        return second if first is None else first
    # A field that only one of the objects has keeps its type.
    if isinstance(first, dict) and isinstance(second, dict):
        return {name: merge_shapes(first.get(name), second.get(name)) for name in (first | second)}
    if isinstance(first, list) and isinstance(second, list):
        return [merge_shapes(first[0], second[0])]
    if isinstance(first, str) and isinstance(second, str):
        return _WIDER.get(frozenset({first, second}), first)
    return first if without_unknown_parts(first) is not None else second


def with_missing_fields(there: Shape, seen: Shape) -> Shape:
    """Return the shape `there` of a table's columns with the fields of `seen` that it lacks. The types in `there` do not change.

    - `seen`: the shape of records.
    """
    if there is None:
        return without_unknown_parts(seen)
    if isinstance(there, dict) and isinstance(seen, dict):
        of_names = {name: with_missing_fields(there.get(name), seen.get(name)) for name in (there | seen)}
        return {name: shape for name, shape in of_names.items() if shape is not None}
    if isinstance(there, list) and isinstance(seen, list):
        return [with_missing_fields(there[0], seen[0])]
    # If the table has a map where the values have an object, the object's fields are keys of that map.
    if isinstance(there, tuple) and isinstance(seen, dict):
        item = there[1]
        for shape in seen.values():
            item = with_missing_fields(item, shape)
        return there[0], item
    return there


def without_unknown_parts(seen: Shape) -> Shape:
    """Return the shape without the parts whose type is not known.

    Nulls, empty lists and empty objects have no column until a value shows its type.
    """
    if isinstance(seen, dict):
        return {
            name: shape for name, each in seen.items() if (shape := without_unknown_parts(each)) is not None
        } or None
    if isinstance(seen, list):
        return None if (items := without_unknown_parts(seen[0])) is None else [items]
    return seen


def paths_without_column(seen: Shape, there: Shape, path: str = "") -> Iterator[str]:
    """Yield the paths of known parts of `seen` that have no column in `there`.

    A value that has another type than its column is not reported here, because decoding refuses it.
    """
    if isinstance(seen, dict) and (isinstance(there, dict) or there is None):
        for name, shape in seen.items():
            yield from paths_without_column(shape, (there or {}).get(name), f"{path}.{name}" if path else name)
    elif isinstance(seen, list) and isinstance(there, list):
        yield from paths_without_column(seen[0], there[0], f"{path}[]")
    elif isinstance(seen, dict) and isinstance(there, tuple):
        for name, shape in seen.items():
            yield from paths_without_column(shape, there[1], f"{path}.{name}")
    elif there is None and without_unknown_parts(seen) is not None:
        yield path


def with_valid_names(seen: Shape, there: Shape, reserved: Collection[str] = ()) -> Shape:
    """Return the shape `seen` of records without the fields that cannot be columns.

    A field cannot be a column if its name is empty, is not printable, has a backtick, a quotation mark or a backslash, or differs from
    another name in case only.

    - `there`: the shape of the columns that exist. Their names are kept.
    - `reserved`: names that no field may have.
    """
    if isinstance(seen, list):
        return [with_valid_names(seen[0], there[0] if isinstance(there, list) else None)]
    if not isinstance(seen, dict) or isinstance(there, tuple):
        return seen
    there = there if isinstance(there, dict) else {}
    taken = {name.lower(): name for name in there} | dict.fromkeys(map(str.lower, reserved), "")
    fields: dict[str, Shape] = {}
    for name, shape in seen.items():
        if name and name.isprintable() and not _NOT_IN_NAMES & {*name} and taken.setdefault(name.lower(), name) == name:
            fields[name] = with_valid_names(shape, there.get(name))
    return fields


def with_types(seen: Shape, kinds: Mapping[str, Sequence[str]]) -> Shape:
    """Return the shape `seen` of records with a plain type at each path of `kinds`, even if no value was seen there.

    - `kinds`: the types that a field may have, by its path. If the values of the field show one of these types, the field gets that type.
      Otherwise it gets the first.
    """
    for path, possible in kinds.items():
        seen = _with_kind(seen, path.split("."), possible)
    return seen


def _with_kind(seen: Shape, path: Sequence[str], possible: Sequence[str]) -> Shape:
    if not path:
        return seen if isinstance(seen, str) and seen in possible else possible[0]
    fields = seen if isinstance(seen, dict) else {}
    return fields | {path[0]: _with_kind(fields.get(path[0]), path[1:], possible)}


def columns_text(shape: Mapping[str, Shape]) -> str:
    """Return the columns as text that `flink.deserializer.schema` accepts."""
    return ", ".join(f"{_name_text(name)} {_type_text(each)}" for name, each in shape.items())


def row_type(shape: Mapping[str, Shape]) -> Any:
    """Return the type of rows whose fields have the shapes in `shape`."""
    return parse_columns(columns_text(shape))


def _type_text(shape: Shape) -> str:
    if isinstance(shape, dict):
        return f"STRUCT<{', '.join(f'{_name_text(name)}: {_type_text(each)}' for name, each in shape.items())}>"
    if isinstance(shape, list):
        return f"ARRAY<{_type_text(shape[0])}>"
    return f"MAP<{_type_text(shape[0])}, {_type_text(shape[1])}>" if isinstance(shape, tuple) else str(shape)


def _name_text(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"
