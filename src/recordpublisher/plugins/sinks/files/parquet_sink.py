"""The sink for Parquet files. Their columns are the fields of a type, or the payload, and the metadata. Needs the extra `parquet`."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from recordpublisher.fetcher.sink import RejectedRecord
from recordpublisher.install_commands import install_command

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError(f"the parquet sink needs the extra 'parquet': {install_command('parquet')}") from error

from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.plugins.columns.file_columns import FileColumns, InferredColumns
from recordpublisher.plugins.columns.parquet_encoder import ParquetEncoder, ParquetOptions
from recordpublisher.plugins.columns.partitions import Partitions
from recordpublisher.plugins.deserializers.schemas import InferColumns
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.sink_properties import PARQUET_COLUMNS, PARQUET_PATH, PARTITIONS
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.safe_text import counted

from ..archived_shards import check_partitions, no_archive_of_fields
from .folder_schema import Folder
from .sink import MOST_NAME_BYTES, FileSink


class ParquetSink(FileSink):
    """Writes Parquet files: one column for each field of the value's type, then the metadata with the column names of Spark's source.

    Without a type the columns are `data`, and `value` as JSON text. Readers see complete files only, and each record is in exactly one of
    them; see `flink.sink.parquet.path`.
    """

    suffix = ".parquet"
    folder = PARQUET_PATH

    def __init__(self, properties: Mapping[str, object]) -> None:
        super().__init__(given := Properties(properties))
        self._takes_fields = given.value(PARQUET_COLUMNS) == "FIELDS"
        self._options = ParquetOptions.of(given)
        self._partitions = Partitions(given.value(PARTITIONS))
        if self.keeps_archive:
            taken = [part.name for part in self._partitions.parts if not part.is_derived]
            check_partitions(taken, given.value(PARTITIONS))
        self._columns = FileColumns()
        self._schema = self._columns.schema

    async def open(self, context: SinkContext) -> None:
        """Open the folder.

        Raises:

        - ConfigurationError if the folder cannot be written, or if a field has no column type.
        - ConfigurationError if the files in the folder have other partitions, or a column of another type.
        - StateError if the folder has positions of an earlier version, or if the stored columns cannot be read.
        """
        columns = self._first_columns(context)
        await super().open(context)
        self._use(await self._agreed(columns, may_change=True))

    async def check_values(self, context: SinkContext) -> str | None:
        """Check that each field has a column type, and that the folder's files have no other columns. Return how many columns there are."""
        columns = await self._agreed(self._first_columns(context), may_change=False)
        return f"{counted(len(columns.schema), 'column')}"

    def _first_columns(self, context: SinkContext) -> FileColumns:
        check = partial(self._partitions.check_values, longest=MOST_NAME_BYTES, together=self.folder_bytes)
        if self._takes_fields and context.value_type is InferColumns:
            if self.keeps_archive:
                raise no_archive_of_fields()
            kinds = self._options.types_by_path() | self._partitions.types_by_path()
            return InferredColumns(pa.schema([]), self._partitions.derived_names, check, kinds=kinds)
        columns = FileColumns(context.value_type if self._takes_fields else None, check)
        if self.keeps_archive and columns.schema != FileColumns().schema:
            raise no_archive_of_fields()
        self._check(columns)  # checked before the folder is created
        return columns

    async def _agreed(self, columns: FileColumns, *, may_change: bool) -> FileColumns:
        """Check that the columns fit the folder's, and return the columns to write. Inferred columns begin with the folder's columns.

        `may_change`: whether new columns may be stored in the folder.
        """
        if not isinstance(columns, InferredColumns):
            await self._folder().agree(columns.schema, may_change=may_change)
            return columns
        columns = await self._folder().inferred(columns, None, may_change=False)
        self._check(columns.complete())
        return await self._folder().inferred(columns, None, may_change=may_change)

    def _check(self, columns: FileColumns) -> None:
        self._partitions.check(columns.schema)
        self._options.check(self._partitions.columns_of_files(columns.schema))

    def _folder(self) -> Folder:
        return Folder(self.entries(), self._key, self._path, self._partitions.names)

    def _use(self, columns: FileColumns) -> None:
        self._columns, self._schema = columns, self._partitions.columns_of_files(columns.schema)

    async def learn(self, contents: Sequence[Any]) -> None:
        """Store a column for each field in `contents` that no file of the folder has yet, if columns are inferred."""
        if isinstance(columns := self._columns, InferredColumns):
            seen = await asyncio.to_thread(columns.unknown, contents)
            if seen is not None:
                grown = await self._folder().inferred(columns, seen, may_change=True)
                grown.log_change(self._path, columns)
                self._use(grown)

    def prepare(self, batch: RecordBatch) -> tuple[Any, int]:
        """Return the batch in the form in which it waits for a checkpoint, and the bytes of that form in memory.

        A batch without deserialized values becomes Arrow columns, because these need less memory. Deserialized values become columns
        later, in a thread, because that takes longer.
        """
        refused: list[RejectedRecord] = []
        rows = [] if batch.decoded is not None else self._columns.rows([batch], refused)
        return (rows, sum(part.nbytes for part in rows)) if rows and not refused else super().prepare(batch)

    def file_writers(
        self, contents: Sequence[Any], rejected: list[RejectedRecord]
    ) -> Mapping[str, Callable[[Path], None]]:
        """Return for each partition's folder a function that writes a file into it.

        Records whose values do not fit into the columns are added to `rejected`.
        """
        by_folder: dict[str, list[pa.RecordBatch]] = {}
        for part in contents:
            for rows in self._columns.rows([part], rejected) if isinstance(part, RecordBatch) else part:
                for partition in self._partitions.split(rows):
                    by_folder.setdefault(partition.folder, []).append(partition.rows.select(self._schema.names))
        return {folder: partial(self._write, rows) for folder, rows in by_folder.items()}

    def _write(self, rows: list[pa.RecordBatch], path: Path) -> None:
        encoder = ParquetEncoder(lambda: path, self._schema, self._options)
        for part in rows:
            encoder.write(part)
        encoder.close()
