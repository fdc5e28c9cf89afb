"""Finds the columns that a user's schema selects for a read."""

from typing import Any

import pyarrow as pa

from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA
from recordpublisher.plugins.columns.record_fields import RECORD_FIELDS, SPARK_SCHEMA
from recordpublisher.publishers.errors import ConfigurationError

_TYPES = {field.name: field.spark_type for field in RECORD_FIELDS}
_NAMES = {name.lower(): name for name in _TYPES}
_HINTS = {"value": "data", "key": "partitionKey", "streamname": "stream", "timestamp": "approximateArrivalTimestamp"}
"""Lower-case names of columns in other connectors, and ours."""
_SPARK_NAMES = {"bigint": "LONG"}


def chosen_columns(schema: Any) -> pa.Schema:
    """Return the columns of a StructType, in its order and spelling; names ignore case, as Spark's do.

    Raises: ConfigurationError if a column is unknown, or has another type.
    """
    return pa.schema([_chosen(field) for field in schema.fields])


def with_own_names(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the names of the columns in our spelling."""
    return pa.schema([field.with_name(_NAMES[field.name.lower()]) for field in schema])


def _chosen(field: Any) -> pa.Field:
    name = _NAMES.get(field.name.lower(), "")
    valid = _TYPES.get(name)
    if valid is None:
        hint = _HINTS.get(field.name.lower())
        reason = f"there is no such column{f'; here it is {hint}' if hint else ''}"
        raise ConfigurationError("schema", field.name, SPARK_SCHEMA, reason=reason)
    given = field.dataType.simpleString()
    if _SPARK_NAMES.get(given, given.upper()) != valid:
        raise ConfigurationError("schema", f"{field.name} {given.upper()}", f"{field.name} {valid}")
    return pa.field(field.name, RECORD_SCHEMA.field(name).type, nullable=field.nullable)
