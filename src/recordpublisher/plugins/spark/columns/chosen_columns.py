"""The columns that a user's schema chooses for a read."""

from typing import Any

import pyarrow as pa

from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA
from recordpublisher.plugins.columns.record_fields import RECORD_FIELDS, SPARK_SCHEMA
from recordpublisher.publishers.errors import ConfigurationError

_TYPES = {field.name: field.spark_type for field in RECORD_FIELDS}
_SPARK_NAMES = {"bigint": "LONG"}


def chosen_columns(schema: Any) -> pa.Schema:
    """The columns of a StructType, in its order. Raises: ConfigurationError for an unknown column, or one of another type."""
    return pa.schema([_chosen(field) for field in schema.fields])


def _chosen(field: Any) -> pa.Field:
    valid = _TYPES.get(field.name)
    if valid is None:
        raise ConfigurationError("schema", field.name, SPARK_SCHEMA, reason="there is no such column")
    given = field.dataType.simpleString()
    if _SPARK_NAMES.get(given, given.upper()) != valid:
        raise ConfigurationError("schema", f"{field.name} {given.upper()}", f"{field.name} {valid}")
    return pa.field(field.name, RECORD_SCHEMA.field(field.name).type, nullable=field.nullable)
