"""The Arrow columns of frames: the fields of typed values with the metadata, or the columns of Spark."""

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
    """The columns of values of a type, then the metadata; without a type those of `RECORD_SCHEMA`.

    A field takes the place of the metadata of its name.
    """

    def __init__(self, of: Any = None) -> None:
        """Raises: ConfigurationError that names a field without an Arrow type."""
        self._typed = None if of is None else TypedColumns(of)
        fields = [] if self._typed is None else self._typed.fields
        hidden = {DATA, *(field.name for field in fields)} if fields else ()
        self.metadata = pa.schema([field for field in RECORD_SCHEMA if field.name not in hidden])
        self.schema = pa.schema([*fields, *self.metadata])

    def batch(self, *batches: RecordBatch) -> pa.RecordBatch:
        """Several batches as one. Raises: DeserializationError that names the record and the field that its column does not take."""
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
        """Raises: ValueError that names the field, for a value that its column does not take."""
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
    """The columns of a type, made once. Raises: ConfigurationError."""
    return FrameColumns(of)


def to_arrow(*batches: RecordBatch, into: Any = None) -> pa.RecordBatch:
    """Return the records of batches as one `pyarrow.RecordBatch`: the fields of typed values and the metadata, or the columns of Spark.

    Arrow takes numbers without a copy; texts and payloads are copied once. Needs the extra `arrow`.

    Args:
        batches: the batches in the order of the rows.
        into: the type of the values; None: their class if it has fields.

    Raises:
        ConfigurationError: for a field without an Arrow type, and for values of several classes.
        DeserializationError: for a value that its column does not take.
    """
    if into is None:
        classes = list(dict.fromkeys(type(value) for batch in batches for value in batch.decoded or ()))
        if any(map(has_fields, classes)):
            into = classes[0]
            if len(classes) > 1:
                names = ", ".join(of.__name__ for of in classes)
                raise ConfigurationError("into", None, "the type of all values", reason=f"the values are of {names}")
    return frame_columns(into).batch(*batches)
