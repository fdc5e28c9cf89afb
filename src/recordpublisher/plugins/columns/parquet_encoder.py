"""Writes rows into a Parquet file, one row group after the other. At most one row group waits in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.config_fields import of_property, values_of
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.sink_properties import PARQUET_COMPRESSION, PARQUET_ROW_GROUP, PARQUET_SORT

from ..deserializers.schemas import (
    LARGE_INTEGER_TYPE,
)
from .record_fields import RECORD_FIELDS

_ALL_DIFFERENT = {"value", *(field.name for field in RECORD_FIELDS if field.is_distinct)}
"""Columns without a dictionary: nearly every value differs, and a dictionary would take a quarter of the encoding time."""


class ParquetEncoder:
    """Writes one Parquet file. It collects rows until a row group is full, and opens the file with the first row group."""

    def __init__(self, open_target: Callable[[], Any], schema: pa.Schema, options: ParquetOptions) -> None:
        """Prepare a file that is opened later. `open_target` returns a path or a binary file. The encoder does not close a binary file."""
        self._open_target = open_target
        self._schema, self._options = schema, options
        self._order = [(name, "ascending") for name in options.sorted_by]
        self._waiting: list[pa.RecordBatch] = []
        self._writer: pq.ParquetWriter | None = None
        self.held_bytes = 0

    @property
    def is_opened(self) -> bool:
        """Whether the file was opened. It is opened for its first row group, or in `close`."""
        return self._writer is not None

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows to the row group, and write it if it has reached `row_group_bytes`."""
        self._waiting.append(rows)
        self.held_bytes += rows.nbytes
        if self.held_bytes >= self._options.row_group_bytes:
            self.write_row_group()

    def write_row_group(self) -> None:
        """Write the waiting rows as a row group, even if it is not full, because the caller needs the memory."""
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._waiting, self.held_bytes = [], 0
            table = table.sort_by(self._order) if self._order else table
            self._open_writer().write_table(table, row_group_size=len(table))

    def close(self) -> Any:
        """Write the waiting rows and the file's footer. Return the footer (`pyarrow.parquet.FileMetaData`)."""
        self.write_row_group()
        writer = self._open_writer()
        writer.close()
        return writer.writer.metadata

    def abandon(self) -> None:
        """Close the file now, without writing the waiting rows.

        If the writer were not closed here, it would write the footer of the file later, when it is garbage-collected.
        """
        self._waiting, self.held_bytes = [], 0
        if self._writer is not None:
            self._writer.close()

    def _open_writer(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._open_target(),
                self._schema,
                compression=self._options.compression,
                use_dictionary=[path for path, _ in _leaves(self._schema) if path not in _ALL_DIFFERENT],
                # Statistics of bytes are not written, because no reader uses them to skip row groups.
                write_statistics=[path for path, kind in _leaves(self._schema) if not pa.types.is_binary(kind)],
                sorting_columns=pq.SortingColumn.from_ordering(self._schema, self._order) if self._order else None,
            )
        return self._writer


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    """Options of Parquet files, from the properties `flink.sink.parquet.*`."""

    compression: str = of_property(PARQUET_COMPRESSION)
    row_group_bytes: int = of_property(PARQUET_ROW_GROUP)
    sorted_by: tuple[str, ...] = ()

    @classmethod
    def of(cls, properties: Properties) -> ParquetOptions:
        """Return the options that the properties name. Raises: ConfigurationError if a property has an invalid value."""
        names = [name.strip() for name in (properties.value(PARQUET_SORT) or "").split(",")]
        return cls(sorted_by=tuple(filter(None, names)), **values_of(cls, properties))

    def types_by_path(self) -> dict[str, Sequence[str]]:
        """Return, for inferred columns, the allowed types of each field that files are sorted by, under the field's name.

        The first type is used until values show another one.
        """
        return dict.fromkeys(self.sorted_by, ("STRING", "BIGINT", "BOOLEAN", "DOUBLE", LARGE_INTEGER_TYPE))

    def check(self, schema: pa.Schema) -> None:
        """Check that files with these columns can be sorted. Raises: ConfigurationError if a sort column is missing or nested."""
        for name in self.sorted_by:
            if name not in schema.names or pa.types.is_nested(schema.field(name).type):
                valid = ", ".join(field.name for field in schema if not pa.types.is_nested(field.type))
                raise ConfigurationError(
                    PARQUET_SORT.key,
                    name,
                    f"some of the columns {valid}",
                    reason="the files have no such column, or it is nested",
                )


def _leaves(fields: Iterable[pa.Field], inside: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """Yield path and type of each column of plain values in Parquet, including the fields inside objects, lists and maps."""
    for field in fields:
        path, kind = inside + field.name, field.type
        if pa.types.is_struct(kind):
            yield from _leaves([kind.field(index) for index in range(kind.num_fields)], f"{path}.")
        elif pa.types.is_list(kind):
            yield from _leaves([pa.field("element", kind.value_type)], f"{path}.list.")
        elif pa.types.is_map(kind):
            parts = [pa.field("key", kind.key_type), pa.field("value", kind.item_type)]
            yield from _leaves(parts, f"{path}.key_value.")
        else:
            yield path, kind
