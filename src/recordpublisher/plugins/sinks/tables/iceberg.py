"""Writes rows into a table of Apache Iceberg, each once. Needs the extra `iceberg`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from recordpublisher.install_commands import install_command

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.exceptions import (
        CommitFailedException,
        CommitStateUnknownException,
        NoSuchTableError,
        TableAlreadyExistsError,
        ValidationError,
    )
    from pyiceberg.io.pyarrow import (
        UnsupportedPyArrowTypeException,
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        match_metrics_mode,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, TableProperties
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.transforms import (
        DayTransform,
        HourTransform,
        IdentityTransform,
        MonthTransform,
        Transform,
        YearTransform,
    )
    from pyiceberg.types import StringType
except ImportError as error:
    raise ImportError(f"the iceberg sink needs the extra 'iceberg': {install_command('iceberg')}") from error

from recordpublisher.fetcher.sink import Staged
from recordpublisher.plugins.columns.partitions import Partitions, within_datetime_range
from recordpublisher.plugins.stores.obstore_client import s3_access
from recordpublisher.publishers.errors import (
    ConfigurationError,
    RecordPublisherError,
    StateError,
)
from recordpublisher.publishers.kinesis.ports import run_sync
from recordpublisher.publishers.properties.job_properties import STATE_URI
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.sink_properties import (
    ICEBERG_CATALOG,
    ICEBERG_TABLE,
    PARTITIONS,
    TABLE_BYTES,
    TABLE_COLUMNS,
)
from recordpublisher.publishers.safe_text import mask_passwords

from .iceberg_file_io import ACCESS_PROPERTY, UNSUPPORTED_PROPERTIES, ObjectFileIO
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

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis.sdk.aws_service import AwsAccess

T = TypeVar("T")
_NUMBER = "recordpublisher."
_MOST_STATISTICS_BYTES = 4096
_RETRIES = "commit.retry.num-retries"
_OF_AWS = ("glue", "dynamodb")
"""The types of catalogue that pyiceberg calls with boto3."""
_TRANSFORMS: dict[str | None, Transform[Any, Any]] = {
    None: IdentityTransform(),
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
"""Iceberg's transform of a partition column, by the smallest unit of time in the pattern; None stands for a pattern without a time."""


class IcebergSink(TableSink):
    """Writes Parquet files into the table's folder, and adds them to the table by one snapshot for each commit of the job.

    The positions are stored at `flink.state.uri`. A property of the table has the number of the writer's last commit, so that no commit
    is added twice. The snapshot's summary has the last sequence number of each shard, for people to read. See
    `flink.sink.iceberg.table`.
    """

    def __init__(self, properties: Mapping[str, object]) -> None:
        """Read the properties.

        Raises: ConfigurationError if the table or `flink.state.uri` is missing, or if a property is invalid or cannot be combined with
        another one.
        """
        given = Properties(properties)
        name = given.value(ICEBERG_TABLE)
        if name is None or "." not in name.strip("."):
            raise ConfigurationError(ICEBERG_TABLE.key, name, "namespace.table")
        if given.value(STATE_URI) is None:
            reason = "the iceberg sink cannot store the job's positions in a catalogue"
            raise ConfigurationError(STATE_URI.key, None, STATE_URI.valid, reason=reason)
        if foreign := sorted(UNSUPPORTED_PROPERTIES & {*given.with_prefix(ICEBERG_CATALOG)}):
            reason = "set aws.credentials.* or AWS's configuration files for the credentials, and flink.state.endpoint for S3"
            raise ConfigurationError(f"{ICEBERG_CATALOG.key}{foreign[0]}", reason=reason)
        table = IcebergTable(name, given)
        super().__init__(given, table, f"Iceberg table {table.place}", given.value(TABLE_BYTES))


class IcebergTable(LakeTable):
    """A table of Apache Iceberg.

    One thread makes all calls of the catalogue, because a catalogue in memory is an SQLite database that exists only in the thread that
    made it.
    """

    def __init__(self, name: str, given: Properties) -> None:
        """Read the catalogue's properties. If there are none, the catalogue is the one of pyiceberg's own configuration."""
        catalog = given.with_prefix(ICEBERG_CATALOG)
        self._name, self._columns, self._given = name, chosen_evolution(given, TABLE_COLUMNS), given
        file_io = f"{ObjectFileIO.__module__}.{ObjectFileIO.__name__}"
        self._properties: dict[str, Any] = {"py-io-impl": file_io, **catalog, ACCESS_PROPERTY: self._files_access}
        self._catalog: Catalog | None = None
        self._found: dict[str, str] = {}
        self._loaded_with = self._found
        self._s3: dict[tuple[str | None, bool], AwsAccess] = {}
        self._catalog_access: AwsAccess | None = None
        if (kind := catalog.get("type")) in _OF_AWS:
            from recordpublisher.publishers.kinesis.sdk.aws_service import AwsAccess  # loads the AWS SDK

            own = {
                name: catalog.get(f"{kind}.{name}") or catalog.get(f"client.{name}")
                for name in ("region", "access-key-id")
            }
            needs_keys = own["access-key-id"] is None
            self._catalog_access = AwsAccess(kind, given, None, own["region"], needs_keys=needs_keys)
        self._checked: tuple[Any, ...] = ()
        self._thread = ThreadPoolExecutor(1, "iceberg catalogue")
        where = catalog.get("uri") or catalog.get("type") or "of pyiceberg.yaml"
        self.place = f"{name} of the catalogue {mask_passwords(where)}"

    async def refresh(self) -> None:
        """Find the credentials, region and endpoint that the AWS SDK would use, for the files and for a catalogue of AWS.

        Raises: KinesisError if a call fails; ConfigurationError if there are no credentials; StoreUnavailableError if the provider of
        the credentials cannot be reached.
        """
        for access in list(self._s3.values()):
            await access.refresh()
        if self._catalog_access is not None:
            kind = self._catalog_access.service
            found = await self._catalog_access.refresh()
            given = {name.rpartition(".")[2] for name in self._properties if name.startswith((f"{kind}.", "client."))}
            keys = {
                "access-key-id": found.access_key,
                "secret-access-key": found.secret_key,
                "session-token": found.token,
            }
            settings = {"region": found.region, "endpoint": found.endpoint} | ({} if given & keys.keys() else keys)
            own = {f"{kind}.{name}": value for name, value in settings.items() if value and name not in given}
            self._found = own

    def _files_access(self, region: str | None, needs_keys: bool) -> AwsAccess:
        """Return the access to S3 for the table's files.

        It is made at first use, because the region and keys that the catalogue gives are not known before.
        """
        if (region, needs_keys) not in self._s3:
            access = s3_access(self._given, region, needs_keys=needs_keys)
            run_sync(access.refresh())
            self._s3[region, needs_keys] = access
        return self._s3[region, needs_keys]

    def check_rows(self, rows: pa.RecordBatch, partitions: Partitions) -> None:
        """Check that pyiceberg can convert the Parquet statistics of these rows into Python values.

        Raises: ValueError if a partition's value is so long that Arrow leaves it out of the statistics, or if a time is outside of the
        years 1 to 9999 in UTC.
        """
        partitions.check_values(rows, _MOST_STATISTICS_BYTES, _MOST_STATISTICS_BYTES)
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            if pa.types.is_timestamp(column.type) and not pc.all(within_datetime_range(column), min_count=0).as_py():
                raise ValueError(f"the column {name!r} has a time before the year 1 or after 9999 in UTC")

    def load(self) -> Table:
        """Load the newest version of the table. Raises: NoTableError if there is no table."""
        return self._called(lambda catalog: catalog.load_table(self._name))

    def folder(self) -> TableFolder:
        """Return the folder of the table, with the credentials that the catalogue gives now."""
        table = self.load()
        assert isinstance(table.io, ObjectFileIO)
        return table.io.folder(table.location())

    def location(self) -> str:
        """Return the location of the table, as the catalogue names it."""
        return str(self.load().location())

    def live_files(self, loaded: Table) -> Mapping[str, bool]:
        """Return for the path of each file of the current snapshot whether rows of the file were deleted.

        Raises: StateError if a file is outside of the table's folder.
        """
        folder, found = f"{loaded.location().rstrip('/')}/", dict[str, bool]()
        for task in self._called(lambda _: list(loaded.scan().plan_files())):
            path = task.file.file_path
            if not path.startswith(folder):
                raise StateError(f"{path} of {self.place} is not below the table's location, {folder}")
            found[path.removeprefix(folder)] = bool(task.delete_files)
        return found

    def prepare(self, schema: pa.Schema, partitions: Partitions, *, may_change: bool = True) -> Mapping[str, str]:
        """Create the table, or compare its columns and partitions and add missing columns. Return the types of the rows' columns.

        If `may_change` is False, nothing is created or added. After an OSError this is tried once more, because another worker that started
        at the same time may have created the table.
        """
        try:
            try:
                return self._prepare(schema, partitions, may_change)
            except OSError:
                return self._prepare(schema, partitions, may_change)
        except StateError as error:
            raise ConfigurationError(
                ICEBERG_TABLE.key, self._name, "a table whose columns and partitions fit the records", reason=str(error)
            ) from error

    def columns(self) -> pa.Schema:
        """Return the columns of the table's current schema; none if there is no table."""
        try:
            return self.load().schema().as_arrow()
        except NoTableError:
            return pa.schema([])

    def prepare_if_changed(self, schema: pa.Schema, partitions: Partitions) -> None:
        """Prepare the table again if the id of the table, of its schema or of its partitions has changed."""
        try:
            is_new = _shape(self.load()) != self._checked
        except NoTableError as error:
            reason = "the table was dropped while the job ran"
            raise ConfigurationError(
                ICEBERG_TABLE.key, self._name, "a table; the next start of the job creates it", reason=reason
            ) from error
        if is_new:
            self.prepare(schema, partitions)

    def misfit(self, loaded: Table, columns: Mapping[str, str], partitions: Collection[str]) -> str | None:
        """Return why rows with these columns cannot be added; None if they can. pyiceberg compares columns too, but its errors say less."""
        return _refusal(loaded) or difference_in_words(columns, _types(loaded.schema()))

    def _prepare(self, schema: pa.Schema, partitions: Partitions, may_change: bool) -> Mapping[str, str]:
        try:
            table = self.load()
        except NoTableError:
            if not may_change:
                return {}
            table = self._called(lambda catalog: self._created(catalog, schema, partitions))
        if reason := _refusal(table):
            raise ConfigurationError(ICEBERG_TABLE.key, self._name, "a table that takes the rows", reason=reason)
        there = [(table.schema().find_column_name(field.source_id), field.transform) for field in table.spec().fields]
        if sorted(map(str, there)) != sorted(map(str, _transforms(partitions).items())):
            names = ", ".join(f"{transform}({column})" for column, transform in there) or "nothing"
            reason = f"the table {self._name} is partitioned by {names}"
            raise ConfigurationError(PARTITIONS.key, ", ".join(partitions.names), "its partitions", reason=reason)
        table = self._called(lambda catalog: self._with_columns(catalog, schema, may_change))
        self._checked = _shape(table)
        types = _types(table.schema())
        return {
            path: kind for path, kind in types.items() if any(is_column_or_part(name, path) for name in schema.names)
        }

    def last_number(self, loaded: Table, writer: str) -> int:
        """Return the number of a writer's last commit, from a property of the table; 0 if there is none.

        The property is kept when snapshots expire.
        """
        return int(loaded.properties.get(_NUMBER + writer, 0))

    def writers(self, loaded: Table) -> Collection[str]:
        """Return the names of the writers whose last commit number is in the table's properties."""
        return [name.removeprefix(_NUMBER) for name in loaded.properties if name.startswith(_NUMBER)]

    def commit(
        self, loaded: Table, staged: Sequence[Staged], numbers: Mapping[str, int], retired: Collection[str] = ()
    ) -> None:
        """Add the files in a snapshot, and store the numbers of the writers.

        Each commit makes a snapshot, even one without files, so that Iceberg refuses the commit if `loaded` is not the newest version.

        Raises: ConflictingCommitError if the commit is refused, or if it is not known whether it was made.
        """
        positions: dict[str, str] = {}
        paths: list[str] = []
        for files in map(staged_data_files, staged):
            positions.update(files.positions)
            paths += [f"{loaded.location()}/{files.name(file)}" for file in files.files]
        summary = {_NUMBER + "writer": next(iter(numbers)), _NUMBER + "positions": json.dumps(positions)}
        gone = [_NUMBER + name for name in retired if _NUMBER + name in loaded.properties]

        def commit(_: Catalog) -> None:
            # By default pyiceberg repeats a refused append on the newest version. That version may already have the files of this
            # number, and their rows would then be in the table twice.
            loaded.metadata.properties[_RETRIES] = "0"
            with loaded.transaction() as transaction:
                metadata = transaction.table_metadata
                # The files have no ids of columns, so readers find columns by their names.
                if metadata.name_mapping() is None:
                    mapping = metadata.schema().name_mapping.model_dump_json()
                    transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
                update = transaction.update_snapshot(snapshot_properties=summary)
                merges = metadata.properties.get(TableProperties.MANIFEST_MERGE_ENABLED, "").lower() == "true"
                with update.merge_append() if merges else update.fast_append() as append:
                    for path in paths:
                        append.append_data_file(_data_file(loaded, metadata, path))
                transaction.set_properties({_NUMBER + writer: str(n) for writer, n in numbers.items()})
                if gone:
                    transaction.remove_properties(*gone)

        self._called(commit)

    def _created(self, catalog: Catalog, schema: pa.Schema, partitions: Partitions) -> Table:
        catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        try:
            with catalog.create_table_transaction(self._name, schema) as creation, creation.update_spec() as spec:
                # The partition of a field inside an object gets the name from `flink.sink.partitions`, which no column can have.
                names = {part.column: part.name for part in partitions.parts if part.is_derived and part.form is None}
                for column, transform in _transforms(partitions).items():
                    spec.add_field(column, transform, names.get(column) or f"{column}_{transform}".replace(".", "_"))
        except (CommitFailedException, TableAlreadyExistsError):  # another worker has created it at the same time
            pass
        return catalog.load_table(self._name)

    def _with_columns(self, catalog: Catalog, schema: pa.Schema, may_change: bool) -> Table:
        table = catalog.load_table(self._name)
        change = table.transaction()
        with change.update_schema() as update:
            update.union_by_name(schema)
        wanted = _types(change.table_metadata.schema())
        there = _types(table.schema())
        if check_columns(wanted, there, self._name, TABLE_COLUMNS, self._columns, may_widen=True) and may_change:
            try:
                change.commit_transaction()
            except CommitFailedException:  # another worker may have added them
                there = _types(catalog.load_table(self._name).schema())
                check_columns(wanted, there, self._name, TABLE_COLUMNS, "FIXED")
            return catalog.load_table(self._name)
        return table

    def _called(self, call: Callable[[Catalog], T]) -> T:
        """Call the catalogue in its thread, and return the result.

        Raises: NoTableError if there is no table; ConflictingCommitError if a commit is refused or its result is unknown; StateError if
        the catalogue or the table does not accept the call; OSError if it failed for another reason, so that a later call may succeed.
        """
        return self._thread.submit(self._call, call).result()

    def _call(self, call: Callable[[Catalog], T]) -> T:
        try:
            found = self._found
            if self._catalog is None or self._loaded_with != found:
                self._catalog, self._loaded_with = load_catalog(**self._properties, **found), found
            return call(self._catalog)
        except NoSuchTableError as error:
            raise NoTableError from error
        except (CommitFailedException, CommitStateUnknownException) as error:
            raise ConflictingCommitError(str(error)) from error
        except (RecordPublisherError, OSError):
            raise
        except (ValueError, TypeError, NotImplementedError, ValidationError, UnsupportedPyArrowTypeException) as error:
            raise StateError(f"{self.place} does not accept the call: {error}") from error
        except Exception as error:  # The error of a database, of botocore or of a REST service.
            raise OSError(mask_passwords(f"{type(error).__name__}: {error}")) from error


def _transforms(partitions: Partitions) -> dict[str, Transform[Any, Any]]:
    """Return Iceberg's transform of each partition column: a time is truncated to the smallest unit in the pattern."""
    order = list(_TRANSFORMS)
    units: dict[str, str | None] = {}
    for part in partitions.parts:
        units[part.column] = max(units.get(part.column), part.unit, key=order.index)
    return {column: _TRANSFORMS[unit] for column, unit in units.items()}


def _data_file(table: Table, metadata: TableMetadata, path: str) -> DataFile:
    """Return the entry of a Parquet file in the table, with the partition that the statistics in its footer show.

    pyiceberg's `add_files` cannot be used, because it finds no partition for a field inside an object.
    """
    schema, spec = metadata.schema(), metadata.spec()
    plan = compute_statistics_plan(schema, metadata.properties)
    for field in spec.fields:
        mode = "truncate(16)" if isinstance(plan[field.source_id].iceberg_type, StringType) else "full"
        plan[field.source_id] = dataclasses.replace(plan[field.source_id], mode=match_metrics_mode(mode))
    file = table.io.new_input(path)
    with file.open() as opened:
        footer = pq.read_metadata(opened)
    found = data_file_statistics_from_parquet_metadata(footer, plan, parquet_path_to_id_mapping(schema))
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=found.partition(spec, schema),
        file_size_in_bytes=len(file),
        sort_order_id=None,
        spec_id=spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        **found.to_serialized_dict(),
    )


def _refusal(table: Table) -> str | None:
    """Return why rows cannot be added, or None. A required column is a reason, because records may have no value for it."""
    for field in table.schema().fields:
        if field.required:
            remedy = f"run ALTER TABLE ... ALTER COLUMN {field.name} DROP NOT NULL"
            return f"the column {field.name!r} is required, but rows may have no value for it; {remedy}"
    return None


def _shape(table: Table) -> tuple[Any, ...]:
    return table.metadata.table_uuid, table.metadata.current_schema_id, table.metadata.default_spec_id


def _types(schema: Schema) -> dict[str, str]:
    return types_by_path(schema.fields)
