"""Turns `flink.deserializer.schema` into the type of the values, and makes rows of it from dicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recordpublisher.consumer.deserialization import Deserializer, PreparedDeserializer
from recordpublisher.consumer.typed_values import converter_into
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.job import SCHEMA
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch

from .inference import InferredRow

VALID = (
    "columns such as id BIGINT, at TIMESTAMP, tags ARRAY<STRING>; or the path of a file .avsc, or .json (JSON Schema)"
)


def is_inferred(properties: Properties) -> bool:
    """Return whether a sink infers its columns from the data."""
    return (properties.value(SCHEMA) or "").strip().upper() == "INFER"


def schema_type(properties: Properties) -> Any:
    """Return the type of the schema, or None if none is set. Raises: ConfigurationError if it is wrong; the error says where."""
    if is_inferred(properties):
        return InferredRow
    if (given := properties.value(SCHEMA)) is None:
        return None
    try:
        return _reader_of(given)(given)
    except (OSError, ValueError, RecursionError, TypeError, LookupError) as error:
        raise ConfigurationError(SCHEMA.key, given, VALID, reason=str(error)) from error


def _reader_of(given: str) -> Callable[[str], Any]:
    if given.lower().endswith(".avsc"):
        from .avro_schema import type_of_avro_file  # the extra

        return type_of_avro_file
    if given.lower().endswith(".json"):
        from .json_schema import type_of_json_schema_file

        return type_of_json_schema_file
    from .ddl import parse_columns

    return parse_columns


class ConvertedValues:
    """Turns the dicts of another deserialiser, such as Avro's, into rows of the schema."""

    def __init__(self, values: Deserializer[Any], into: Any) -> None:
        self._values, self.into = values, into
        self._convert = converter_into(into)
        self.decompressor = getattr(values, "decompressor", None)

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Return the rows. Raises: ValueError if a record does not fit the schema; it names the field."""
        made = self._values.values(batch)
        return list(map(self._convert, batch.data if made is None else made))

    async def prepare(self, batch: RecordBatch) -> None:
        """Let the other deserialiser fetch what it needs for the batch."""
        if isinstance(self._values, PreparedDeserializer):
            await self._values.prepare(batch)
