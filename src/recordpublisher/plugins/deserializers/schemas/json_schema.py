"""Turns a JSON Schema in a file `.json` into the type of rows. It reads only the keywords that define columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import msgspec

from .model import PLAIN, SchemaField, list_of, map_of, object_type

_PLAIN: dict[str, Any] = {"boolean": bool, "integer": PLAIN["BIGINT"], "number": float, "string": str}
_FORMATS: dict[str, Any] = {"date-time": datetime, "date": date, "time": time, "uuid": UUID}
_CHOICES = ("anyOf", "oneOf")
_MOST_LEVELS = 64


def type_of_json_schema_file(path: str) -> Any:
    """Return the type of rows.

    Raises: ValueError if the schema is not that of an object, or has a part without a column; OSError if the file cannot be read.
    """
    schema = msgspec.json.decode(Path(path).read_bytes())
    of = _Types(schema).of(schema, "$", 0)
    if not (isinstance(of, type) and issubclass(of, msgspec.Struct)):
        raise ValueError("the schema of a row is of an object with properties")  # noqa: TRY004 - of the file
    return of


class _Types:
    """Turns schemas into types. It owns the whole document, to whose parts `$ref` refers."""

    def __init__(self, document: Any) -> None:
        self._document = document

    def of(self, schema: Any, place: str, level: int) -> Any:
        """Return the type for a schema. `place`: the path of the field, such as `$.address.country`.

        Raises: ValueError if there is no column for the schema.
        """
        if not isinstance(schema, Mapping) or level > _MOST_LEVELS:
            raise ValueError(f"{place} has no type, or is inside itself: there is no column for it")
        if "$ref" in schema:
            return self.of(self._part(schema["$ref"]), place, level + 1)
        kind, choices = schema.get("type"), next((schema[word] for word in _CHOICES if word in schema), None)
        if isinstance(kind, list):
            choices = [{**schema, "type": each} for each in kind]
        if choices:
            return self._only(choices, place, level)
        if kind == "array":
            return list_of(self.of(schema.get("items"), f"{place}[]", level + 1))
        return self._object(schema, place, level) if kind == "object" else self._plain(kind, schema, place)

    def _plain(self, kind: Any, schema: Mapping[str, Any], place: str) -> Any:
        if kind == "string" or (kind is None and _are_texts(schema.get("enum"))):
            return _text(schema)
        if kind not in _PLAIN:
            raise ValueError(f"{place} has the type {kind!r}, for which there is no column")
        return _PLAIN[kind]

    def _object(self, schema: Mapping[str, Any], place: str, level: int) -> Any:
        required = schema.get("required", ())
        fields = [
            SchemaField(name, self.of(field, f"{place}.{name}", level + 1), name in required)
            for name, field in schema.get("properties", {}).items()
        ]
        if fields:
            return object_type(fields) if place == "$" else object_type(fields, place.rpartition(".")[2])
        return map_of(str, self.of(schema.get("additionalProperties"), f"{place}[]", level + 1))

    def _only(self, choices: list[Any], place: str, level: int) -> Any:
        kinds = [choice for choice in choices if choice.get("type") != "null"]
        if len(kinds) != 1:
            raise ValueError(f"{place} is one of several types, for which there is no column")
        of = self.of(kinds[0], place, level + 1)
        return of | None if len(kinds) < len(choices) else of

    def _part(self, reference: str) -> Any:
        part = self._document
        for name in reference.removeprefix("#/").split("/"):
            if not isinstance(part, Mapping) or name not in part or not reference.startswith("#/"):
                raise ValueError(f"{reference} is not a part of this file")
            part = part[name]
        return part


def _text(schema: Mapping[str, Any]) -> Any:
    if schema.get("contentEncoding") == "base64":
        return bytes
    values: Any = schema.get("enum")
    return Literal[tuple(values)] if _are_texts(values) else _FORMATS.get(schema.get("format", ""), str)


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, str) for value in values)
