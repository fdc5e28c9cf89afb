"""The Arrow columns of data frames: the fields of typed values with the metadata, or the columns of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from recordpublisher.consumer.typed_values import has_fields
from recordpublisher.publishers.errors import ConfigurationError, DeserializationError
from recordpublisher.publishers.records import RecordBatch

from .record_columns import RECORD_SCHEMA, arrow_columns
from .record_fields import DATA
from .typed_columns import TypedColumns


class FrameColumns:
    """The columns of a type's fields, then the metadata; without a type, the columns of `RECORD_SCHEMA`.

    If a field has the name of a metadata column, the field replaces that column.
    """

    def __init__(self, of: Any = None) -> None:
        """Choose the columns of the type `of`. Raises: ConfigurationError if a field has no Arrow type; it names the field."""
        self._typed = None if of is None else TypedColumns(of)
        fields = [] if self._typed is None else self._typed.fields
        hidden = {DATA, *(field.name for field in fields)} if fields else ()
        self.metadata = pa.schema([field for field in RECORD_SCHEMA if field.name not in hidden])
        self.schema = pa.schema([*fields, *self.metadata])

    def batch(self, *batches: RecordBatch) -> pa.RecordBatch:
        """Return several batches as one.

        Raises: DeserializationError if a value does not fit its column; it names the record and the field.
        """
        metadata = arrow_columns(*batches, schema=self.metadata)
        if self._typed is None:
            return metadata
        try:
            typed = self._typed.arrays([value for batch in batches for value in batch.values])
        except ValueError:
            for batch in batches:
                self._check_each(self._typed, batch)
            raise
        return pa.RecordBatch.from_arrays([*typed, *metadata.columns], schema=self.schema)

    def check(self, values: Sequence[Any]) -> None:
        """Check that values fit the columns. Raises: ValueError if one does not; it names the field."""
        if self._typed is not None:
            self._typed.arrays(values)

    @staticmethod
    def _check_each(typed: TypedColumns, batch: RecordBatch) -> None:
        for value, number in zip(batch.values, batch.sequence_numbers, strict=True):
            try:
                typed.arrays([value])
            except ValueError as error:
                raise DeserializationError(batch.stream, batch.shard_id, number, str(error)) from error


@cache
def frame_columns(of: Any = None) -> FrameColumns:
    """Return the columns of a type, which are made once and kept. Raises: ConfigurationError if a field has no Arrow type."""
    return FrameColumns(of)


def to_arrow(*batches: RecordBatch, into: Any = None) -> pa.RecordBatch:
    """Return the records of batches as one `pyarrow.RecordBatch`: the fields of typed values and the metadata, or the columns of Spark.

    Arrow takes numbers without a copy; texts and payloads are copied once. Needs the extra `arrow`.

    Args:
        batches: the batches in the order of the rows.
        into: the type of the values. If it is None, the type is the class of the values, provided that it has fields.

    Raises:
        ConfigurationError: if a field has no Arrow type, or if `into` is None and the values are of several classes.
        DeserializationError: if a value does not fit its column.
    """
    if into is None:
        classes = list(dict.fromkeys(type(value) for batch in batches for value in batch.decoded or ()))
        if any(map(has_fields, classes)):
            into = classes[0]
            if len(classes) > 1:
                names = ", ".join(of.__name__ for of in classes)
                raise ConfigurationError("into", None, "the type of all values", reason=f"the values are of {names}")
    return frame_columns(into).batch(*batches)
