"""ParquetEncoder: rows to a Parquet file, row group by row group, so that no more than one waits in memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.files_and_tables import (
    PARQUET_COMPRESSION,
    PARQUET_ROW_GROUP,
    PARQUET_SORT,
    PARQUET_STATISTICS,
)
from recordpublisher.publishers.properties.properties import Properties

"""Columns without a dictionary: nearly every value differs, and it would cost a quarter of the encoding."""
_ALL_DIFFERENT = {
    "explicitHashKey",
    "sequenceNumber",
    "subSequenceNumber",
    "approximateArrivalTimestamp",
    "eventTime",
    "data",
    "value",
}


class ParquetOptions(NamedTuple):
    """How files are written: `flink.sink.parquet.*`."""

    compression: str = "SNAPPY"
    row_group_bytes: int = 32 * 2**20
    has_statistics: bool = True
    sorted_by: tuple[str, ...] = ()

    @classmethod
    def of(cls, properties: Properties) -> ParquetOptions:
        """Raises: ConfigurationError."""
        names = [name.strip() for name in (properties.value(PARQUET_SORT) or "").split(",")]
        return cls(
            properties.value(PARQUET_COMPRESSION),
            properties.value(PARQUET_ROW_GROUP),
            properties.value(PARQUET_STATISTICS),
            tuple(filter(None, names)),
        )

    def check(self, schema: pa.Schema) -> None:
        """Whether files of these columns can be sorted as wanted. Raises: ConfigurationError."""
        for name in self.sorted_by:
            if name not in schema.names or pa.types.is_nested(schema.field(name).type):
                valid = ", ".join(field.name for field in schema if not pa.types.is_nested(field.type))
                raise ConfigurationError(PARQUET_SORT.key, name, f"some of the columns {valid}")


class ParquetEncoder:
    """Owns the rows of the next row group, and the writer of the file."""

    def __init__(self, target: Any, schema: pa.Schema, options: ParquetOptions) -> None:
        """`target`: a path, or a file that is open for bytes, which stays open."""
        self._schema, self._options = schema, options
        self._waiting: list[pa.RecordBatch] = []
        self.held_bytes = 0
        order = [(name, "ascending") for name in options.sorted_by]
        self._writer = pq.ParquetWriter(
            target,
            schema,
            compression=options.compression,
            use_dictionary=[name for name in schema.names if name not in _ALL_DIFFERENT],
            write_statistics=options.has_statistics,
            sorting_columns=pq.SortingColumn.from_ordering(schema, order) if order else None,
        )
        self._order = order

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows to the row group, and write it when it has `row_group_bytes`."""
        self._waiting.append(rows)
        self.held_bytes += rows.nbytes
        if self.held_bytes >= self._options.row_group_bytes:
            self.write_row_group()

    def write_row_group(self) -> None:
        """Write what waits: memory is needed."""
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._waiting, self.held_bytes = [], 0
            self._writer.write_table(table.sort_by(self._order) if self._order else table, row_group_size=len(table))

    def close(self) -> Any:
        """Write the rest and the file's footer. Returns what the footer says (`pyarrow.parquet.FileMetaData`)."""
        self.write_row_group()
        self._writer.close()
        return self._writer.writer.metadata
