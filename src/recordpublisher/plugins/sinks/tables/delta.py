"""DeltaSink: rows into a table of Delta Lake, each once. Needs the extra `delta`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from recordpublisher.extras import install_command

try:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction
except ImportError as error:
    raise ImportError(f"the delta sink needs the extra 'delta': {install_command('delta')}") from error

from recordpublisher.fetcher.committing_sink import Staged
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.plugins.columns.partitions import Partitions
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.plugins.stores.durable_files import make_folder, sync
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.properties.groups.files_and_tables import (
    DELTA_BYTES,
    DELTA_COLUMNS,
    DELTA_STORAGE,
    DELTA_URI,
    PARTITIONS,
)
from recordpublisher.publishers.properties.properties import Properties

from ..unfinished_uploads import UnfinishedUploads
from .folder import TableFolder
from .sink import TableSink
from .staged_data_files import staged_data_files
from .storage import FORMS, TableStorage
from .table import ConflictingCommitError, LakeTable, NoTableError, check_columns

_ENTRIES = "_recordpublisher/positions"


class DeltaSink(TableSink):
    """Writes Parquet files into the table's folder, and adds them in one transaction of Delta's log for each commit of the job.

    The positions lie beside the table, in `_recordpublisher`. The log has the writer's number, by which nothing is added twice, and the
    last sequence number of each shard, for people. See `flink.sink.delta.uri`.
    """

    def __init__(self, properties: Mapping[str, object]) -> None:
        """Raises: ConfigurationError."""
        given = Properties(properties)
        uri = given.value(DELTA_URI)
        if uri is None:
            raise ConfigurationError(DELTA_URI.key, None, FORMS)
        storage = TableStorage(uri, DELTA_URI.key, given)
        table = DeltaLakeTable(storage, given.with_prefix(DELTA_STORAGE), given.value(DELTA_COLUMNS))
        self._entries = conditional_store_of(f"{uri.rstrip('/')}/{_ENTRIES}", DELTA_URI.key, given)
        uploads = UnfinishedUploads(storage.uri, given) if storage.uri.startswith("s3:") else None
        super().__init__(given, table, f"Delta table {storage.uri}", given.value(DELTA_BYTES), uploads)

    def entries(self) -> ConditionalStore:
        """Beside the table."""
        return self._entries


class DeltaLakeTable(LakeTable):
    """Owns the last version that was loaded."""

    keeps_partition_columns = False

    def __init__(self, storage: TableStorage, options: Mapping[str, str], columns: str) -> None:
        """`options` go before those of the storage."""
        self._storage, self._columns, self._given = storage, columns, dict(options)
        self._loaded: DeltaTable | None = None
        self._loaded_with: dict[str, str] = {}

    async def refresh(self) -> None:
        """Those of the storage."""
        await self._storage.refresh()

    @property
    def _options(self) -> dict[str, str]:
        return self._storage.options | self._given

    def load(self) -> DeltaTable:
        """Only the log's entries since the last time are read. Raises: NoTableError, StateError."""
        loaded, self._loaded, options = self._loaded, None, self._options
        try:
            if loaded is None or self._loaded_with != options:
                self._loaded_with = options
                loaded = DeltaTable(self._storage.uri, storage_options=options)
            else:
                loaded.update_incremental()
        except TableNotFoundError as error:
            raise NoTableError from error
        except DeltaError as error:
            raise StateError(f"{self._storage.uri} cannot be read: {error}") from error
        self._loaded = loaded
        return loaded

    def folder(self) -> TableFolder:
        """The folder of the table."""
        return self._storage.folder()

    def prepare(self, schema: pa.Schema, partitions: Partitions, *, may_change: bool = True) -> None:
        """Create the table, or add columns."""
        of_time = [pa.field(part.name, pa.string()) for part in partitions.parts if part.form is not None]
        wanted = pa.schema([*schema, *of_time])
        wanted = Schema.from_arrow(pa.schema(map(_checked, wanted)))
        try:
            table = self.load()
        except NoTableError:
            if not may_change:
                return
            table = self._created(wanted, partitions)
        if (there := table.metadata().partition_columns) != partitions.names:
            names = ", ".join(there) or "nothing"
            reason = f"the table {self._storage.uri} is partitioned by {names}"
            raise ConfigurationError(PARTITIONS.key, ", ".join(partitions.names), "its partitions", reason=reason)
        for attempt in range(2):
            new = self._new_columns(wanted, table)
            if not new or not may_change:
                return
            try:
                table.alter.add_columns(new)
            except DeltaError:  # another subtask may have added them
                if attempt:
                    raise
            table = self.load()

    def _created(self, schema: Schema, partitions: Partitions) -> DeltaTable:
        if self._storage.is_local:
            make_folder(Path(self._storage.uri))
        options, names = self._options, partitions.names
        try:
            DeltaTable.create(self._storage.uri, schema, "ignore", partition_by=names, storage_options=options)
        except DeltaError:  # another subtask has created it at the same time
            self.load()
        return self.load()

    def _new_columns(self, wanted: Schema, table: DeltaTable) -> list[Any]:
        there = {field.name: field.type for field in table.schema().fields}
        kinds = {field.name: field.type for field in wanted.fields}
        missing = check_columns(kinds, there, self._storage.uri, DELTA_COLUMNS, self._columns)
        return [field for field in wanted.fields if field.name in missing]

    def describe(self, footer: Any) -> str | None:
        """Delta's statistics: readers leave out files by them."""
        return json.dumps(_statistics(footer))

    def last_number(self, loaded: DeltaTable, writer: str) -> int:
        """As the log has it: it outlives the cleanup of the log."""
        return loaded.transaction_version(writer) or 0

    def commit(self, loaded: DeltaTable, staged: Sequence[Staged]) -> None:
        """A handle that is not the newest is refused if the same writer has committed since."""
        adds: list[Any] = []
        positions: dict[str, str] = {}
        for files in map(staged_data_files, staged):
            positions.update(files.positions)
            now_ms = time.time_ns() // 1_000_000
            adds += [
                AddAction(files.name(file), file.size, dict(file.partition), now_ms, True, file.stats or "{}")
                for file in files.files
            ]
        number = staged[-1].number
        properties = CommitProperties(
            custom_metadata={
                "recordpublisher": json.dumps({"writer": number.writer, "number": number.n, "positions": positions})
            },
            app_transactions=[Transaction(number.writer, number.n)],
        )
        try:
            loaded.create_write_transaction(adds, "append", loaded.schema(), commit_properties=properties)
        except CommitFailedError as error:
            raise ConflictingCommitError(str(error)) from error
        except DeltaError as error:
            raise StateError(f"{self._storage.uri} takes no commit: {error}") from error
        if self._storage.is_local:
            log = Path(self._storage.uri) / "_delta_log"
            for file in sorted(log.glob("*.json"))[-3:]:
                sync(file)
            sync(log)


def _checked(field: pa.Field) -> pa.Field:
    """The field itself. Raises: ConfigurationError for one that Delta Lake has no type for, such as a time of day."""
    try:
        Schema.from_arrow(pa.schema([field]))
    except Exception as error:
        valid = "fields of texts, numbers, booleans, bytes, times with a date, dates, lists, maps and objects"
        reason = f"it is {field.type}, for which Delta Lake has no type"
        raise ConfigurationError("deserializer", field.name, valid, reason=reason) from error
    return field


def _statistics(footer: Any) -> dict[str, Any]:
    """Rows and nulls, and the least and greatest of whole numbers and times, of columns that are no objects."""
    nulls: dict[str, int] = {}
    limits: dict[str, list[Any]] = {}
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, found = column.path_in_schema, column.statistics
            if found is not None and "." not in name:
                nulls[name] = nulls.get(name, 0) + found.null_count
                limits.setdefault(name, []).extend(_limits(found))
    known = {name: values for name, values in limits.items() if values and None not in values}
    return {
        "numRecords": footer.num_rows,
        "minValues": {name: _json_value(min(values)) for name, values in known.items()},
        "maxValues": {name: _json_value(max(values)) for name, values in known.items()},
        "nullCount": nulls,
    }


def _limits(found: Any) -> list[Any]:
    """None: not known, or of a type whose order readers do not agree on. The greatest time is rounded up, as the log has ms."""
    try:
        values = [found.min, found.max] if found.has_min_max else []
        if values and isinstance(values[1], datetime):
            values[1] += timedelta(microseconds=999)
    except (OverflowError, ValueError):  # a time after the year 9999, or in its last ms
        return [None]
    return [value if isinstance(value, (int, date)) else None for value in values]


def _json_value(value: Any) -> Any:
    """Times in ms, as Delta's log has them."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value
