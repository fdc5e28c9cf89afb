"""Writes rows into a table of Delta Lake, each once. Needs the extra `delta`."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from recordpublisher.install_commands import install_command

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction
except ImportError as error:
    raise ImportError(f"the delta sink needs the extra 'delta': {install_command('delta')}") from error

from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.sink import Staged
from recordpublisher.plugins.columns.partitions import Partitions
from recordpublisher.plugins.stores.back_ends import S3, back_end_of
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.plugins.stores.durable_files import make_folder, sync
from recordpublisher.publishers.errors import ConfigurationError, StateError, without_colours
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.sink_properties import (
    DELTA_STORAGE,
    DELTA_URI,
    PARTITIONS,
    TABLE_BYTES,
    TABLE_COLUMNS,
)
from recordpublisher.publishers.safe_text import few_of

from ..archived_shards import HIDDEN
from ..unfinished_uploads import UnfinishedUploads
from .sink import TableSink
from .staged_data_files import staged_data_files
from .table import (
    ConflictingCommitError,
    LakeTable,
    NoTableError,
    check_columns,
    chosen_evolution,
    difference_in_words,
    is_column_or_part,
    types_by_path,
)
from .table_folder import TableFolder
from .table_location import FORMS, TableLocation

ENTRIES = "_recordpublisher/positions"
"""Folder inside the table's folder, for the positions of jobs."""
_KNOWN = {
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping", "timestampNtz",
    "deletionVectors", "v2Checkpoint",
}  # fmt: skip
"""Features of tables to which the sink can write. They do not affect a writer that only adds files, or `_refusal` checks their use."""
_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity.")
"""Beginnings of the names of rules in the metadata of a column."""
_KEPT = {"delta.setTransactionRetentionDuration": "interval 30 days"}
"""Settings of tables that the sink creates. Without the retention, the log would keep the number of each run of a worker for ever."""
_INFO, _LOG, _LATEST = "recordpublisher", "_delta_log", 20
_MOST_CHARACTERS = 32
_ABOVE_ALL_TEXTS = "\U0010ffff" * 4


class DeltaSink(TableSink):
    """Writes Parquet files into the table's folder, and adds them to the table by one transaction of Delta's log for each commit.

    The positions are stored in the table's folder, in `_recordpublisher`. The log has the number of the writer's last commit, so that
    no commit is added twice, and the last sequence number of each shard for people to read. See `flink.sink.delta.uri`.
    """

    def __init__(self, properties: Mapping[str, object]) -> None:
        """Read the properties. Raises: ConfigurationError if the table's URI is missing, or a property is invalid."""
        given = Properties(properties)
        uri = given.value(DELTA_URI)
        if uri is None:
            raise ConfigurationError(DELTA_URI.key, None, FORMS)
        storage = TableLocation(uri, DELTA_URI.key, given, given.with_prefix(DELTA_STORAGE))
        table = DeltaLakeTable(storage, chosen_evolution(given, TABLE_COLUMNS))
        self._entries = conditional_store_of(f"{uri.rstrip('/')}/{ENTRIES}", DELTA_URI.key, given)
        uploads = UnfinishedUploads(storage.uri, given) if back_end_of(storage.uri) is S3 else None
        super().__init__(given, table, f"Delta table {storage.uri}", given.value(TABLE_BYTES), uploads)

    def entries(self) -> ConditionalStore:
        """Return the store of the job's positions, which is in the folder of the table."""
        return self._entries


class DeltaLakeTable(LakeTable):
    """A table of Delta Lake.

    Once a record has NaN, the log no longer gets the least and greatest values of files: Spark sorts NaN above the greatest value, and
    would skip files that have NaN.
    """

    keeps_partition_columns = False
    numbers_expire = True

    def __init__(self, storage: TableLocation, columns: str) -> None:
        self._storage, self._columns = storage, columns
        self._loaded: DeltaTable | None = None
        self._loaded_with: dict[str, str] = {}
        self._entry: tuple[int, bytes | None] = (0, None)
        """The version that was loaded, and a digest of its entry in the log. A new table at the same place has another entry."""
        self._checked: tuple[Any, ...] = ()
        self._with_limits: frozenset[str] = frozenset()
        self._has_nan = False

    async def refresh(self) -> None:
        """Find the credentials that are valid now."""
        await self._storage.refresh()

    def load(self) -> DeltaTable:
        """Load the table. If it is the same table as before, only the new entries of its log are read.

        Raises: NoTableError if there is no table; StateError if it cannot be read.
        """
        loaded, self._loaded, options = self._loaded, None, self._storage.options
        try:
            if loaded is None or self._loaded_with != options or not self._is_still_there():
                self._loaded_with, self._entry = options, (0, None)
                loaded = DeltaTable(self._storage.uri, storage_options=options)
            else:
                loaded.update_incremental()
        except TableNotFoundError as error:
            raise NoTableError from error
        except DeltaError as error:
            raise StateError(f"{self._storage.uri} cannot be read: {error}") from error
        if (version := loaded.version()) != self._entry[0] or self._entry[1] is None:
            self._entry = (version, self._digest(version))
        self._loaded = loaded
        return loaded

    def _is_still_there(self) -> bool:
        """Return whether the log still has the entry of the loaded version.

        If the table was replaced by a new one, deltalake would add the entries of the new table to the state of the old one.
        """
        version, digest = self._entry
        return digest is not None and self._digest(version) == digest

    def _digest(self, version: int) -> bytes | None:
        """Return a digest of the log's entry of a version; None if the entry is missing. Entries never change."""
        with suppress(FileNotFoundError):
            return hashlib.sha256(self.folder().read(f"{_LOG}/{version:020}.json")).digest()
        return None

    def check_rows(self, rows: pa.RecordBatch, partitions: Partitions) -> None:
        """Remember whether a row has NaN. If so, the log gets no least and greatest values from then on."""
        floats = (column for column in rows.columns if pa.types.is_floating(column.type))
        self._has_nan = self._has_nan or any(pc.any(pc.is_nan(column)).as_py() for column in floats)

    def folder(self) -> TableFolder:
        """Return the folder of the table."""
        return self._storage.folder()

    def location(self) -> str:
        """Return the URI of the table."""
        return self._storage.uri

    def live_files(self, loaded: DeltaTable) -> Mapping[str, bool]:
        """Return for the path of each file of this version whether rows of the file were deleted."""
        paths = pa.table(loaded.get_add_actions()).column("path").to_pylist()
        deleted: set[str] = set()
        if "deletionVectors" in (loaded.protocol().reader_features or ()):
            deleted = {*pa.table(loaded.deletion_vectors()).column("filepath").to_pylist()}
        return {path: any(each.endswith(f"/{path}") for each in deleted) for path in paths}

    def prepare(self, schema: pa.Schema, partitions: Partitions, *, may_change: bool = True) -> Mapping[str, str]:
        """Create the table, or compare its columns and partitions and add missing columns. Return the types of the rows' columns.

        If `may_change` is False, nothing is created or added.
        """
        wanted = pa.schema([*schema, *partitions.derived_columns(schema)])
        wanted = Schema.from_arrow(pa.schema(map(_checked, wanted)))
        types = types_by_path(wanted.fields)
        try:
            table = self.load()
        except NoTableError:
            if not may_change:
                return types
            table = self._created(wanted, partitions)
        if reason := _refusal(table):
            raise ConfigurationError(DELTA_URI.key, self._storage.uri, "a table that takes the rows", reason=reason)
        if (there := table.metadata().partition_columns) != partitions.names:
            names = ", ".join(there) or "nothing"
            reason = f"the table {self._storage.uri} is partitioned by {names}"
            raise ConfigurationError(PARTITIONS.key, ", ".join(partitions.names), "its partitions", reason=reason)
        for attempt in range(2):
            new = self._new_columns(wanted, table)
            if not new or not may_change:
                break
            try:
                table.alter.add_columns(new)
            except DeltaError:  # another worker may have added them
                if attempt:
                    raise
            table = self.load()
        self._checked = _shape(table)
        there = pa.schema(table.schema().to_arrow())
        with_limits = (field.name for field in there if not _has_no_limits(field.type))
        self._with_limits = frozenset(with_limits) - {*partitions.names}
        return types

    def columns(self) -> pa.Schema:
        """Return the columns of the newest version; none if there is no table."""
        try:
            return pa.schema(self.load().schema().to_arrow())
        except NoTableError:
            return pa.schema([])

    def prepare_if_changed(self, schema: pa.Schema, partitions: Partitions) -> None:
        """Prepare the table again if its id, partitions, settings, protocol or columns have changed in the log."""
        try:
            is_new = _shape(self.load()) != self._checked
        except NoTableError as error:
            reason = "the table was deleted while the job ran"
            raise ConfigurationError(
                DELTA_URI.key, self._storage.uri, "a table; the next start of the job creates it", reason=reason
            ) from error
        if is_new:
            self.prepare(schema, partitions)

    def misfit(self, loaded: DeltaTable, columns: Mapping[str, str], partitions: Collection[str]) -> str | None:
        """Return why rows with these columns cannot be added; None if they can.

        Delta itself does not compare columns, so rows would lose values.
        """
        there = types_by_path(loaded.schema().fields)
        if list(partitions) != (names := loaded.metadata().partition_columns):
            return f"the table is partitioned by {', '.join(names) or 'nothing'} now"
        return _refusal(loaded) or difference_in_words(columns, there)

    def _created(self, schema: Schema, partitions: Partitions) -> DeltaTable:
        if HIDDEN in self.folder().names(""):
            reason = (
                "the sink jsonl or parquet has its files there, and readers of all Parquet files in that folder "
                "would read the rows of both"
            )
            raise ConfigurationError(DELTA_URI.key, self._storage.uri, "a folder of its own", reason=reason)
        if self._storage.is_local:
            make_folder(Path(self._storage.uri))
        options, names = self._storage.options, partitions.names
        try:
            DeltaTable.create(
                self._storage.uri, schema, "ignore", partition_by=names, storage_options=options, configuration=_KEPT
            )
        except DeltaError:  # another worker has created it at the same time
            self.load()
        return self.load()

    def _new_columns(self, wanted: Schema, table: DeltaTable) -> list[Any]:
        """Return the columns to add, and the columns of objects to extend with new fields.

        Raises: ConfigurationError if a column has another type, or is missing and must not be added.
        """
        kinds, there = types_by_path(wanted.fields), types_by_path(table.schema().fields)
        missing = check_columns(kinds, there, self._storage.uri, TABLE_COLUMNS, self._columns)
        return [field for field in wanted.fields if any(is_column_or_part(field.name, path) for path in missing)]

    def describe(self, footer: Any) -> str | None:
        """Return Delta's statistics of a file as JSON. Readers use them to skip files."""
        found = _statistics(footer, self._with_limits) if not self._has_nan else {"numRecords": footer.num_rows}
        return msgspec.json.encode(found).decode()

    def last_number(self, loaded: DeltaTable, writer: str) -> int:
        """Return the number of a writer's last commit, from the log; 0 if there is none. The number survives the cleanup of the log."""
        return loaded.transaction_version(writer) or 0

    def writers(self, loaded: DeltaTable) -> Collection[str]:
        """Return the names of the writers that made the latest commits, from the newest files of the table's log.

        These files are read here, because deltalake's `history` would block the whole process.
        """
        folder, found = self.folder(), set[str]()
        for name in sorted(name for name in folder.names(_LOG) if name.endswith(".json"))[-_LATEST:]:
            actions = map(json.loads, folder.read(f"{_LOG}/{name}").splitlines())
            infos = (action.get("commitInfo", {}).get(_INFO) for action in actions)
            found |= {json.loads(info)["writer"] for info in infos if info}
        return found

    def commit(
        self, loaded: DeltaTable, staged: Sequence[Staged], numbers: Mapping[str, int], retired: Collection[str] = ()
    ) -> None:
        """Add the files, and store the numbers of the writers.

        If `loaded` is not the newest version, Delta refuses the commit only if the same writer has committed since. Each number has the
        time of its commit, so that the log drops numbers older than the table's `delta.setTransactionRetentionDuration`.

        Raises: ConflictingCommitError if the commit conflicts with another one; StateError if the table does not accept it.
        """
        adds: list[Any] = []
        positions: dict[str, str] = {}
        now_ms = time.time_ns() // 1_000_000
        for files in map(staged_data_files, staged):
            positions.update(files.positions)
            adds += [
                AddAction(files.name(file), file.size, dict(file.partition), now_ms, True, file.stats or "{}")
                for file in files.files
            ]
        writer, n = next(iter(numbers.items()))
        properties = CommitProperties(
            custom_metadata={_INFO: json.dumps({"writer": writer, "number": n, "positions": positions})},
            app_transactions=[Transaction(writer, n, now_ms) for writer, n in numbers.items()],
        )
        try:
            loaded.create_write_transaction(adds, "append", loaded.schema(), commit_properties=properties)
        except CommitFailedError as error:
            if "Unsupported table features" in str(error):
                raise StateError(f"{self._storage.uri} does not accept the commit: {error}") from error
            raise ConflictingCommitError(without_colours(str(error))) from error
        except DeltaError as error:
            raise StateError(f"{self._storage.uri} does not accept the commit: {error}") from error
        if self._storage.is_local:
            log = Path(self._storage.uri) / _LOG
            for file in sorted(log.glob("*.json"))[-3:]:
                sync(file)
            sync(log)


def _shape(table: DeltaTable) -> tuple[Any, ...]:
    found = table.metadata()
    return found.id, found.partition_columns, found.configuration, table.protocol(), table.schema().to_json()


def _refusal(table: DeltaTable) -> str | None:
    """Return why a writer that only adds files must not write to this table; None if it may."""
    protocol, settings = table.protocol(), table.metadata().configuration
    if unknown := sorted({*(protocol.writer_features or ()), *(protocol.reader_features or ())} - _KNOWN):
        names = few_of(unknown)
        return f"the table has features that this sink does not keep: {names}. Drop them from the table, or write to another table"
    if settings.get("delta.columnMapping.mode", "none") != "none":
        return "the table has column mapping, which this sink does not support; write to a table without it"
    if constraints := [name for name in settings if name.startswith("delta.constraints.")]:
        names = few_of([name.removeprefix("delta.constraints.") for name in constraints])
        return f"the table has CHECK constraints, which this sink does not check: {names}; drop them from the table (DROP CONSTRAINT)"
    for field in table.schema().fields:
        if not field.nullable:
            remedy = f"run ALTER TABLE ... ALTER COLUMN {field.name} DROP NOT NULL"
            return f"the column {field.name!r} is NOT NULL, but rows may have no value for it; {remedy}"
        if rules := [name for name in field.metadata if name.startswith(_RULES)]:
            return f"the column {field.name!r} has {', '.join(rules)}, which this sink does not keep; write to a table without it"
    return None


def _checked(field: pa.Field) -> pa.Field:
    """Return the field itself. Raises: ConfigurationError if Delta Lake has no type for it, such as for a time of day."""
    try:
        Schema.from_arrow(pa.schema([field]))
    except Exception as error:
        valid = "fields of texts, numbers, booleans, bytes, times with a date, dates, lists, maps and objects"
        reason = f"it is {field.type}, for which Delta Lake has no type"
        raise ConfigurationError("deserializer", field.name, valid, reason=reason) from error
    return field


def _statistics(footer: Any, expected: Collection[str]) -> dict[str, Any]:
    """Return the number of rows of a file, and for each column the number of nulls and the limits (least and greatest value).

    If limits are not known for all `expected` columns, only the number of rows is returned. Otherwise deltalake's Arrow datasets, which
    DuckDB and polars use too, would take a missing limit for null, and find no row. A column that the file does not have counts as null in
    all rows.
    """
    rows = {"numRecords": footer.num_rows}
    there = {footer.schema.column(index).path for index in range(footer.num_columns)}
    nulls = {name: 0 if name in there else footer.num_rows for name in expected}
    limits: dict[str, list[Any]] = {}
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, found = column.path_in_schema, column.statistics
            if name not in expected:
                continue
            known = [] if found is None else _limits(found)
            if found is None or (not known and found.null_count < group.num_rows):
                return rows
            nulls[name] += found.null_count
            limits.setdefault(name, []).extend(known)
    least = {name: _json_value(min(values)) for name, values in limits.items() if values}
    greatest = {name: _json_value(max(values), is_greatest=True) for name, values in limits.items() if values}
    return {**rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _has_no_limits(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind))


def _limits(found: Any) -> list[Any]:
    """Return the least and the greatest value; nothing if they are not known.

    The greatest time is rounded up, because the log keeps only ms.
    """
    try:
        if not found.has_min_max:  # Parquet has no limits for long texts.
            is_text = found.logical_type.type == "STRING" and found.num_values > 0
            return ["", _ABOVE_ALL_TEXTS] if is_text else []
        values = [found.min, found.max]
        if isinstance(values[1], datetime):
            values[1] += timedelta(microseconds=999)
    except (OverflowError, ValueError):  # a time after the year 9999, or in its last ms
        return []
    return [] if any(isinstance(value, float) and not math.isfinite(value) for value in values) else values


def _json_value(value: Any, *, is_greatest: bool = False) -> Any:
    """Return a limit in the form of Delta's log: a time in ms, the beginning of a long text, a decimal without an exponent."""
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        return value[:_MOST_CHARACTERS] + (_ABOVE_ALL_TEXTS if is_greatest else "")
    if isinstance(value, Decimal):
        return msgspec.Raw(format(value, "f").encode())
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value
