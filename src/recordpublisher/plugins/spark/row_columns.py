"""Makes the columns of a read from records: all columns of the source, or only those in the schema that the user gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from recordpublisher.consumer.deserialization import Deserializer
from recordpublisher.plugins.columns.record_fields import RECORD_FIELDS
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.job_properties import ON_BAD_RECORD, SCHEMA
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch

from ..columns.record_columns import RECORD_SCHEMA, arrow_columns

if TYPE_CHECKING:
    from ..columns.typed_columns import FrameColumns

HOW_TO_INFER = "recordpublisher tail STREAM --no-follow --format schema prints the columns that follow from the records"


class RowColumns:
    """The columns that Spark receives, in the order and spelling of `schema`. No other columns are made.

    - `decoded`: the columns of `flink.deserializer.schema`, or None if it is not set. All its fields are decoded, even if `schema` leaves
      some out, so that each bad record is found.
    """

    def __init__(self, schema: pa.Schema | None = None, decoded: ColumnsAndDeserializer | None = None) -> None:
        self.values = None if decoded is None else decoded.values
        """The deserializer that makes the values of the columns, or None to use the deserializer that the properties name."""
        self._typed = None if decoded is None else decoded.columns
        self.schema = source_columns(decoded) if schema is None else schema
        spelling = {name.lower(): name for name in source_columns(decoded).names}
        self._names = [spelling[name.lower()] for name in self.schema.names]
        metadata = RECORD_SCHEMA if self._typed is None else self._typed.metadata
        self._metadata = pa.schema([metadata.field(name) for name in self._names if name in metadata.names])

    @classmethod
    def chosen(cls, schema: Any, properties: Properties) -> RowColumns:
        """Return the columns that the StructType `schema` names. As in Spark, case is ignored.

        Raises: ConfigurationError if a column is unknown or has another type, or if `flink.deserializer.schema` is invalid.
        """
        decoded = columns_and_deserializer(properties)
        valid = {field.name.lower(): field for field in source_columns(decoded)}
        return cls(pa.schema([_chosen(field, valid) for field in schema.fields]), decoded)

    def batch(
        self, batches: Sequence[RecordBatch], joined: Callable[[Sequence[Sequence[bytes]]], bytes | memoryview]
    ) -> pa.RecordBatch:
        """Return the records of several batches as one Arrow batch.

        - `joined`: a function that concatenates payloads.

        Raises: DeserializationError if a value does not fit its column. The error names the record and the field.
        """
        made = arrow_columns(*batches, schema=self._metadata, joined=joined)
        by_name = dict(zip(self._metadata.names, made.columns, strict=True))
        if self._typed is not None:
            by_name |= zip(self._typed.schema.names, self._typed.field_columns(*batches), strict=False)
        return pa.RecordBatch.from_arrays([by_name[name] for name in self._names], schema=self.schema)


class ColumnsAndDeserializer(NamedTuple):
    """The columns that a read with `flink.deserializer.schema` has, and the deserializer that makes their values.

    The fields of the schema come first. Metadata such as the partition key follows.
    """

    columns: FrameColumns
    values: Deserializer[Any]


def columns_and_deserializer(properties: Properties) -> ColumnsAndDeserializer | None:
    """Return the columns of `flink.deserializer.schema` and their deserializer, or None if it is not set.

    The columns are the same as in the data frames of this library (`rp.read_arrow`).

    Raises: ConfigurationError if the schema is invalid, or if Spark cannot have one of its columns.
    """
    given = properties.value(SCHEMA)
    if given is None:
        return None
    # Imported here because most reads have no schema, and each process of Spark pays for its imports.
    from recordpublisher.plugins.deserializers.schemas import is_inferred
    from recordpublisher.plugins.host.plugin_loading import load_registry

    from ..columns.file_columns import check_names
    from ..columns.typed_columns import CheckedValues, FrameColumns
    from ..host.build_from_properties import build_deserializer

    if is_inferred(properties):
        reason = f"Spark needs the columns before it reads; {HOW_TO_INFER}"
        raise ConfigurationError(SCHEMA.key, given, "these columns", reason=reason)
    values: Any = build_deserializer(load_registry(), properties)
    columns = FrameColumns(values.into)
    check_names(columns.schema)
    for path in (path for field in columns.schema for path in _times_in(field.type, field.name)):
        valid = f"{path} STRING, or a schema without this column"
        raise ConfigurationError(SCHEMA.key, f"{path} TIME", valid, reason="Spark cannot read a column of type TIME")
    # With the policy FAIL, values are not checked one by one: building the columns raises the same error at less cost.
    is_checked = properties.value(ON_BAD_RECORD) != "FAIL"
    return ColumnsAndDeserializer(columns, CheckedValues(values, columns) if is_checked else values)


def source_columns(decoded: ColumnsAndDeserializer | None) -> pa.Schema:
    """Return all columns that the source has. `decoded`: the columns of `flink.deserializer.schema`, or None if it is not set."""
    return RECORD_SCHEMA if decoded is None else decoded.columns.schema


def spark_schema(properties: Properties) -> Any:
    """Return all columns that the source has, as a StructType. Used if `flink.deserializer.schema` is set.

    Raises: ConfigurationError if the schema is invalid, or if Spark cannot have one of its columns.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(source_columns(columns_and_deserializer(properties)))


def _times_in(kind: pa.DataType, path: str) -> Iterator[str]:
    """Yield the path of each part of a column that has the type TIME, such as `address.at` and `stops[].at`."""
    if pa.types.is_time(kind):
        yield path
    for part in map(kind.field, range(kind.num_fields)):
        yield from _times_in(part.type, f"{path}.{part.name}" if pa.types.is_struct(kind) else f"{path}[]")


_TYPES = {field.name: field.spark_type for field in RECORD_FIELDS}
_HINTS = {"value": "data", "key": "partitionKey", "streamname": "stream", "timestamp": "approximateArrivalTimestamp"}
"""Lower-case names of columns in other connectors, each with our name for it."""
_SHORT_NAMES = {"LONG": "bigint"}


def _chosen(field: Any, valid: Mapping[str, pa.Field]) -> pa.Field:
    ours = valid.get(field.name.lower())
    if ours is None:
        hint = valid.get(_HINTS.get(field.name.lower(), "").lower())
        reason = f"there is no such column{f'; its name here is {hint.name}' if hint else ''}"
        raise ConfigurationError("schema", field.name, ", ".join(map(_column_text, valid.values())), reason=reason)
    given, needed = field.dataType.simpleString(), _column_text(ours)
    if _is_of_record(ours):
        if given != _SHORT_NAMES.get(_TYPES[ours.name], _TYPES[ours.name].lower()):
            raise ConfigurationError("schema", f"{field.name} {given.upper()}", needed)
    elif field.dataType != (exact := _spark_type(ours)):
        is_same = given == exact.simpleString()
        reason = "NOT NULL and COMMENT are not supported inside a column" if is_same else ""
        raise ConfigurationError("schema", f"{field.name} {given}", needed, reason=reason)
    return pa.field(field.name, ours.type, nullable=field.nullable)


def _spark_type(field: pa.Field) -> Any:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(field.type)


def _is_of_record(field: pa.Field) -> bool:
    """Return whether a column is metadata or the undecoded payload of a record, and not a field of its decoded value."""
    return field.name in _TYPES and RECORD_SCHEMA.field(field.name) == field


def _column_text(field: pa.Field) -> str:
    """Return the name and type of a column as SQL, as in a schema."""
    if _is_of_record(field):
        return f"{field.name} {_TYPES[field.name]}"
    from recordpublisher.plugins.deserializers.schemas import columns_text

    from ..columns.file_columns import shape_of_type

    return columns_text({field.name: shape_of_type(field.type)})
