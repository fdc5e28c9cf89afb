"""Stores which columns the files of a folder have, because readers take the folder for one table."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from recordpublisher.fetcher.conditional_store import (
    ConditionalStore,
    ConflictError,
    read_document,
    unreadable_error,
    write_value,
)
from recordpublisher.plugins.columns.file_columns import InferredColumns
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.sink_properties import PARTITIONS

_NAME, _FORMAT = "columns", 1


class FolderColumns(msgspec.Struct, frozen=True):
    """The columns that any file of a folder has.

    - `columns`: the type of each column, for people to read.
    - `arrow`: the same columns as an Arrow schema. After a restart, inferred columns begin with these.
    - `partitions`: the names of the partition columns.
    """

    columns: dict[str, str]
    arrow: bytes
    partitions: list[str]
    format: int = _FORMAT

    @classmethod
    def of(cls, schema: pa.Schema, partitions: list[str]) -> "FolderColumns":
        """Return the columns in the form in which they are stored."""
        types = {field.name: str(field.type) for field in schema}
        return cls(types, schema.serialize().to_pybytes(), partitions)

    def schema(self, place: str) -> pa.Schema:
        """Return the columns as an Arrow schema. Raises: StateError if they cannot be read. Its message names `place`."""
        try:
            return pa.ipc.read_schema(pa.py_buffer(self.arrow))
        except (pa.ArrowException, OSError) as error:
            raise unreadable_error(place, error) from error


class Folder(msgspec.Struct, frozen=True):
    """A folder of files: the store of its columns, the property that names the folder, its path, and its partition columns."""

    store: ConditionalStore
    key: str
    path: str
    partitions: list[str]

    async def agree(self, schema: pa.Schema, *, may_change: bool) -> None:
        """Check that the columns `schema` fit the columns of the files in the folder, and store new columns.

        Several processes may make this call at the same time.

        - `may_change`: whether new columns may be stored. If not, the columns are only compared.

        Raises: ConfigurationError if readers could not read the old and the new files as one table; StateError if the stored columns
        cannot be read or written.
        """

        def united(there: pa.Schema) -> pa.Schema:
            return _united(schema, there, self.key, self.path)

        await self._store(united, may_change)

    async def inferred(
        self, columns: InferredColumns, seen: Mapping[str, Any] | None, *, may_change: bool
    ) -> InferredColumns:
        """Return `columns` with the folder's columns, and with a new column for each field of `seen` that the folder lacks.

        The new columns are stored. If several processes add a field, the first one decides its type, and the others use that type.

        - `seen`: the fields that records have (see `InferredColumns`), or None at the start.
        - `may_change`: whether new columns may be stored.

        Raises: ConfigurationError if the files in the folder are partitioned by other columns; StateError if the stored columns cannot be
        read or written.
        """
        grown = columns

        def united(there: pa.Schema) -> pa.Schema:
            nonlocal grown
            grown = columns.grown_by(seen, there)
            return grown.kept

        await self._store(united, may_change)
        return grown

    async def _store(self, united: Callable[[pa.Schema], pa.Schema], may_change: bool) -> None:
        """Call `united` with the stored columns, and store the columns that it returns. If another process was faster, try again.

        `may_change`: if False, store nothing. The call still shows whether the columns fit, because `united` raises an error if not.
        """
        stored = await self.store.get(_NAME)
        place = f"{_NAME} in {self.store.place}"
        while True:
            there, before = pa.schema([]), None
            if stored is not None:
                before = read_document(stored.value, FolderColumns, place, _FORMAT)
                there = before.schema(place)
                self._check_partitions(before.partitions)
            fields = {field.name: field for schema in (there, united(there)) for field in schema}
            wanted = FolderColumns.of(pa.schema(list(fields.values())), self.partitions)
            if not may_change or (before is not None and wanted.columns == before.columns):
                return
            try:
                await write_value(
                    self.store, _NAME, msgspec.json.encode(wanted), None if stored is None else stored.version
                )
            except (
                ConflictError
            ) as error:  # Another process was faster, so compare with the columns that it has stored.
                stored = error.current
            else:
                return

    def _check_partitions(self, there: list[str]) -> None:
        if self.partitions != there:
            reason = f"the files in {self.path} are partitioned by {', '.join(there) or 'nothing'}; write to another folder ({self.key})"
            raise ConfigurationError(
                PARTITIONS.key, ", ".join(self.partitions), "the partitions of the folder", reason=reason
            )


def _united(wanted: pa.Schema, there: pa.Schema, key: str, path: str) -> pa.Schema:
    """Return the columns `wanted`. Their objects also get the fields that the same objects have in existing files (`there`).

    Raises: ConfigurationError if readers could not read old and new files as one table.
    """
    known = {field.name.casefold(): field for field in there}
    united: list[pa.Field] = []
    for field in wanted:
        same = known.get(field.name.casefold(), field)
        kind = _united_type(same.type, field.type) if same.name == field.name else None
        if kind is None:
            reason = (
                f"files there have a column {same.name!r} of the type {same.type}, the records have {field.name!r} of the type "
                f"{field.type}, and readers could not read both as one table; keep the name and the type of the field, or write to "
                "another folder"
            )
            raise ConfigurationError(key, path, "a folder whose files have the columns of the records", reason=reason)
        united.append(field.with_type(kind))
    return pa.schema(united)


def _united_type(there: pa.DataType, wanted: pa.DataType) -> pa.DataType | None:
    """Return a type with the fields of both object types, even inside lists and maps. Return None if the types differ in anything else."""
    types = pa.types
    if types.is_struct(there) and types.is_struct(wanted):
        fields = {there.field(index).name: there.field(index).type for index in range(there.num_fields)}
        by_lower = {name.casefold(): name for name in fields}
        for field in (wanted.field(index) for index in range(wanted.num_fields)):
            is_twin = by_lower.get(field.name.casefold(), field.name) != field.name
            kind = None if is_twin else _united_type(fields.get(field.name, field.type), field.type)
            if kind is None:
                return None
            fields[field.name] = kind
        return pa.struct(list(fields.items()))
    if types.is_list(there) and types.is_list(wanted):
        item = _united_type(there.value_type, wanted.value_type)
        return None if item is None else pa.list_(item)
    if types.is_map(there) and types.is_map(wanted) and there.key_type == wanted.key_type:
        item = _united_type(there.item_type, wanted.item_type)
        return None if item is None else pa.map_(there.key_type, item)
    return wanted if there == wanted else None
