"""AvroDeserializer: records that are one Avro value each, in the binary encoding; extra `avro`."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.formats import AVRO_SCHEMA, AVRO_SCHEMA_FILE
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch

try:
    import fastavro
except ImportError as error:
    raise ImportError("the avro deserialiser needs the extra 'avro': pip install 'recordpublisher[avro]'") from error


class AvroDeserializer:
    """Decodes each record with the schema of the properties. A record of Avro becomes a dict. Raises: ConfigurationError."""

    def __init__(self, properties: Properties) -> None:
        self._schema = schema_of(properties)
        if self._schema is None:
            raise ConfigurationError(AVRO_SCHEMA.key, None, "an Avro schema as JSON", reason=_ONE_IS_NEEDED)

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """The decoded values. Raises: ValueError for a record that does not fit the schema."""
        return [decode(data, self._schema) for data in batch.data]


_ONE_IS_NEEDED = f"exactly one of it and {AVRO_SCHEMA_FILE.key} is needed by flink.deserializer=avro"


def schema_of(properties: Properties) -> Any:
    """The schema of the properties; None without one. Raises: ConfigurationError."""
    text, path = properties.value(AVRO_SCHEMA), properties.value(AVRO_SCHEMA_FILE)
    if text is None and path is None:
        return None
    if text is not None and path is not None:
        raise ConfigurationError(AVRO_SCHEMA.key, text, "an Avro schema as JSON", reason=_ONE_IS_NEEDED)
    key, given = (AVRO_SCHEMA.key, text) if path is None else (AVRO_SCHEMA_FILE.key, path)
    try:
        return parse_schema(text if path is None else Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        valid = "an Avro schema as JSON" if path is None else "a file with an Avro schema as JSON"
        raise ConfigurationError(key, given, valid, reason=str(error)) from error


def parse_schema(text: str | None) -> Any:
    """A schema from its JSON. Raises: ValueError."""
    try:
        return fastavro.parse_schema(json.loads(text or ""))
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def decode(data: bytes, schema: Any, reader_schema: Any = None) -> Any:
    """The value that `schema` wrote, as the reader's schema has it. Raises: ValueError."""
    stream = io.BytesIO(data)
    try:
        value = fastavro.schemaless_reader(stream, schema, reader_schema)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise ValueError(
            f"it does not fit the Avro schema: {reason} after {stream.tell()} of {len(data)} bytes"
        ) from error
    if stream.tell() != len(data):
        raise ValueError(f"it does not fit the Avro schema: the value ends after {stream.tell()} of {len(data)} bytes")
    return value
