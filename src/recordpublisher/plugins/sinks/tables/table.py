"""Defines the operations that a sink needs of a table format, and compares the columns of rows with the columns of a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from recordpublisher.fetcher.sink import Staged
from recordpublisher.plugins.columns.partitions import Partitions
from recordpublisher.plugins.deserializers.schemas import is_inferred
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.job_properties import SCHEMA
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.safe_text import few_of

from .table_folder import TableFolder

_REWRITTEN = "a table with the types of the records: stop the job, and rewrite the table with them, as the page about lakes shows"


class LakeTable(ABC):
    """A table that stores the number of each writer's last commit. A writer is one run of a worker, named `job/life` (`CommitNumber`).

    The argument `loaded` is a version of the table, as `load` has returned it.

    All methods but `refresh` block. They raise OSError if a later call may succeed, and StateError if not. `folder`, `describe` and
    `check_rows` may be called from any thread. The others are called one at a time, so that `last_number` and `commit` see the same
    loaded version.
    """

    keeps_partition_columns = True
    """Whether files include the columns by which the table is partitioned."""
    numbers_expire = False
    """Whether the table may forget the number of a writer by itself."""

    async def refresh(self) -> None:  # noqa: B027 - optional on purpose
        """Find credentials that are valid now. Called on the event loop before the other methods.

        Raises: KinesisError or StoreUnavailableError if they cannot be found.
        """

    def check_rows(self, rows: pa.RecordBatch, partitions: Partitions) -> None:  # noqa: B027 - optional on purpose
        """Check rows before they are written; may be called from any thread.

        Raises: ValueError if the rows could be committed but never published.
        """

    @abstractmethod
    def prepare(self, schema: pa.Schema, partitions: Partitions, *, may_change: bool = True) -> Mapping[str, str]:
        """Create the table, or compare its columns and partitions, and add missing columns. Return the types of the rows' columns.

        If `may_change` is False, nothing is created or added.

        Raises: ConfigurationError if the columns or partitions differ, or if the table cannot accept rows of this sink.
        """

    @abstractmethod
    def columns(self) -> pa.Schema:
        """Return the columns of the newest version; none if there is no table."""

    @abstractmethod
    def prepare_if_changed(self, schema: pa.Schema, partitions: Partitions) -> None:
        """Prepare the table again if its columns, partitions or settings have changed since the last `prepare`.

        Raises: ConfigurationError if the table was deleted, or no longer accepts the rows (see `prepare`).
        """

    @abstractmethod
    def misfit(self, loaded: Any, columns: Mapping[str, str], partitions: Collection[str]) -> str | None:
        """Return why rows with these columns cannot be added to this version, or would lose values; None if they can be added."""

    @abstractmethod
    def folder(self) -> TableFolder:
        """Return the folder of the table's files."""

    @abstractmethod
    def location(self) -> str:
        """Return the location of the table's folder, in the form that a `ConditionalStore` accepts."""

    @abstractmethod
    def live_files(self, loaded: Any) -> Mapping[str, bool]:
        """Return for the path of each file of this version, relative to the folder, whether rows of the file were deleted."""

    def describe(self, footer: Any) -> str | None:
        """Return what the table format stores about a file, from the file's footer; None if it stores nothing."""
        return None

    @abstractmethod
    def load(self) -> Any:
        """Return the newest version of the table. Raises: NoTableError if there is no table."""

    @abstractmethod
    def last_number(self, loaded: Any, writer: str) -> int:
        """Return the number of a writer's last commit in this version of the table, or 0 if the table has none."""

    @abstractmethod
    def writers(self, loaded: Any) -> Collection[str]:
        """Return the names of the writers of the latest commits, as far as this version of the table shows them."""

    @abstractmethod
    def commit(
        self, loaded: Any, staged: Sequence[Staged], numbers: Mapping[str, int], retired: Collection[str] = ()
    ) -> None:
        """Add the files, perhaps none, and store the numbers of these writers.

        `retired`: writers whose numbers are no longer needed.

        Raises: ConflictingCommitError if another process has committed a number of one of these writers after this version.
        """


class NoTableError(Exception):
    """Raised if there is no table yet."""


class ConflictingCommitError(Exception):
    """Raised if another commit was faster, or if the result of a commit is unknown.

    The caller loads the table again, which shows whether the number of the commit is stored.
    """


def chosen_evolution(properties: Properties, declared: Property[str]) -> str:
    """Return whether the table may get new columns (EVOLVE) or not (FIXED). Inferred columns imply EVOLVE.

    - `declared`: the property that has one of these values.

    Raises: ConfigurationError if the columns are inferred and FIXED is set.
    """
    if is_inferred(properties):
        if properties.is_set(declared) and properties.value(declared) != "EVOLVE":
            reason = f"{SCHEMA.key}=INFER adds columns"
            raise ConfigurationError(declared.key, properties.value(declared), "EVOLVE", reason=reason)
        return "EVOLVE"
    return properties.value(declared)


def types_by_path(fields: Iterable[Any]) -> dict[str, str]:
    """Return the types of columns of Delta Lake or Iceberg by path, including the fields inside a column.

    Such paths are `address.country` for a field of an object, `tags[]` for the items of a list or the values of a map, and `sums[key]`
    for the keys of a map.
    """
    types: dict[str, str] = {}
    for field in fields:
        _add_types(types, field.name, _type_of(field))
    return types


def _add_types(types: dict[str, str], path: str, kind: Any) -> None:
    if hasattr(kind, "fields"):
        types[path] = "an object"
        for field in kind.fields:
            _add_types(types, f"{path}.{field.name}", _type_of(field))
    elif hasattr(kind, "element_type"):
        types[path] = "a list"
        _add_types(types, f"{path}[]", kind.element_type)
    elif hasattr(kind, "key_type"):
        types[path] = "a map"
        _add_types(types, f"{path}[key]", kind.key_type)
        _add_types(types, f"{path}[]", kind.value_type)
    else:
        types[path] = str(getattr(kind, "type", kind))  # deltalake's own text is PrimitiveType("long")


def _type_of(field: Any) -> Any:
    return field.field_type if hasattr(field, "field_type") else field.type


def is_column_or_part(column: str, path: str) -> bool:
    """Return whether a path of `types_by_path` is this column, or inside it."""
    return path == column or path.startswith((f"{column}.", f"{column}["))


def difference_in_words(wanted: Mapping[str, str], there: Mapping[str, str]) -> str | None:
    """Return how the columns of rows differ from the columns of a table, or None if they do not. The table may have more columns.

    `wanted`, `there`: the types by path (see `types_by_path`).
    """
    for name, kind in wanted.items():
        if there.get(name) != kind:
            found = "no longer exists" if name not in there else f"is {there[name]} now"
            return f"the column {name!r}, which is {kind} in the records, {found}"
    return None


def check_columns(
    wanted: Mapping[str, str],
    there: Mapping[str, str],
    table: str,
    declared: Property[str],
    columns: str,
    *,
    may_widen: bool = False,
) -> list[str]:
    """Return the paths of columns that the table lacks, or has with a narrower type.

    - `wanted`, `there`: the types by path of the rows and of the table (see `types_by_path`).
    - `columns`: the value of the property `declared`, FIXED or EVOLVE.
    - `may_widen`: whether EVOLVE also accepts another type, which the table format has checked.

    Raises: ConfigurationError if a column has another type, if its name differs from another one in case only, or if it is missing and must
    not be added.
    """
    by_lower = {name.lower(): name for name in there}
    missing: list[str] = []
    for name, kind in wanted.items():
        if (twin := by_lower.get(name.lower(), name)) != name and name not in there:
            reason = f"the field {name!r} differs from the column {twin!r} of {table} in case only"
            raise ConfigurationError(declared.key, columns, f"a field with the name {twin!r}", reason=reason)
        is_other = name in there and there[name] != kind
        if is_other and not (may_widen and columns == "EVOLVE"):
            reason = f"column {name!r} is {there[name]} in {table}, and {kind} in the records"
            valid = "EVOLVE, which widens the column" if may_widen else _REWRITTEN
            raise ConfigurationError(declared.key, columns, valid, reason=reason)
        if is_other or name not in there:
            missing.append(name)
    if missing and columns == "FIXED":
        reason = f"{table} has no column {few_of([*map(repr, missing)])}"
        raise ConfigurationError(declared.key, columns, "EVOLVE, which adds columns", reason=reason)
    return missing
