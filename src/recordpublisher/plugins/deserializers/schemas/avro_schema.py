"""Turns an Avro schema in a file `.avsc` into the type of rows. Needs the extra `avro`."""

from __future__ import annotations

from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from recordpublisher.extras import install_command

try:
    import fastavro
except ImportError as error:
    raise ImportError(f"a schema in a file .avsc needs the extra 'avro': {install_command('avro')}") from error

from .model import PLAIN, SchemaField, decimal_type, list_of, map_of, object_type

_PLAIN: dict[str, Any] = {
    "boolean": bool, "int": PLAIN["INT"], "long": PLAIN["BIGINT"], "float": PLAIN["FLOAT"], "double": float,
    "bytes": bytes, "fixed": bytes, "string": str,
}  # fmt: skip
_LOGICAL: dict[str, Any] = {
    "date": date, "time-millis": time, "time-micros": time, "timestamp-millis": datetime, "timestamp-micros": datetime,
    "uuid": UUID,
}  # fmt: skip


def type_of_avro_file(path: str) -> Any:
    """Return the type of rows. Named types may be in files next to this one, such as `shop.Address.avsc`.

    Raises: ValueError if the schema is not a record, or has a type without a column; OSError if the file cannot be read.
    """
    try:
        Path(path).stat()  # fastavro's error says less about a missing file
        named: dict[str, Any] = {}
        schema = fastavro.schema.load_schema(path, named_schemas=named)
    except (
        KeyError,
        TypeError,
        RecursionError,
        fastavro.schema.SchemaParseException,
        fastavro.repository.SchemaRepositoryError,
    ) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("the schema of a row is a record")
    return _Types(named).of(schema, "$", ())


class _Types:
    """Turns schemas into types. It owns the named schemas, to which others refer."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named

    def of(self, schema: Any, place: str, inside: tuple[str, ...]) -> Any:
        """Return the type for a schema.

        - `place`: the path of the field, such as `$.address.country`.
        - `inside`: the names of the records around it.

        Raises: ValueError if there is no column for the schema.
        """
        if isinstance(schema, list):
            return self._union(schema, place, inside)
        if isinstance(schema, str):
            return _PLAIN[schema] if schema in _PLAIN else self._named_type(schema, place, inside)
        kind, logical = schema["type"], schema.get("logicalType")
        if logical == "decimal":
            return decimal_type(schema["precision"], schema.get("scale", 0))
        if (known := _LOGICAL.get(logical) or self._nested(kind, schema, place, inside)) is not None:
            return known
        return self.of(kind, place, inside)

    def _nested(self, kind: Any, schema: dict[str, Any], place: str, inside: tuple[str, ...]) -> Any:
        if kind in ("record", "error"):
            return self._record(schema, place, inside)
        if kind == "enum":
            return Literal[tuple(schema["symbols"])]
        if kind == "array":
            return list_of(self.of(schema["items"], f"{place}[]", inside))
        return map_of(str, self.of(schema["values"], f"{place}[]", inside)) if kind == "map" else None

    def _named_type(self, name: str, place: str, inside: tuple[str, ...]) -> Any:
        if name not in self._named:
            raise ValueError(f"{place} is {name}, for which there is no column")
        return self.of(self._named[name], place, inside)

    def _record(self, schema: dict[str, Any], place: str, inside: tuple[str, ...]) -> Any:
        name = schema["name"]
        if name in inside:
            raise ValueError(f"{place} is a {name} inside a {name}, for which there is no column")
        fields = [
            SchemaField(field["name"], self.of(field["type"], f"{place}.{field['name']}", (*inside, name)))
            for field in schema["fields"]
        ]
        return object_type(fields, name.rpartition(".")[2]) if inside else object_type(fields)

    def _union(self, schema: list[Any], place: str, inside: tuple[str, ...]) -> Any:
        kinds = [kind for kind in schema if kind != "null"]
        if len(kinds) != 1:
            raise ValueError(f"{place} is one of several types, for which there is no column")
        of = self.of(kinds[0], place, inside)
        return of | None if len(kinds) < len(schema) else of
