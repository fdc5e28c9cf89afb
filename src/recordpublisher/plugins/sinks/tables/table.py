"""LakeTable: what a sink needs of a table format; and what the columns of a table must be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from recordpublisher.fetcher.committing_sink import Staged
from recordpublisher.plugins.columns.partitions import Partitions
from recordpublisher.plugins.deserializers.schemas.chosen_schema import is_inferred
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.groups.formats import SCHEMA
from recordpublisher.publishers.properties.properties import Properties

from .folder import TableFolder


class NoTableError(Exception):
    """There is no table yet."""


class ConflictingCommitError(Exception):
    """Another commit was faster, or there is no answer: the table must be loaded again, and says whether the number is there."""


class LakeTable(ABC):
    """A table that keeps the last number of each writer. All calls block, and raise OSError when a later one may help, StateError when not.

    `folder` and `describe` may be called from any thread, the others one at a time: what is loaded is the same version in `last_number`
    and in `commit`.
    """

    keeps_partition_columns = True
    """Whether files have the columns by which the table is partitioned."""
    numbers_expire = False
    """Whether the table may forget the number of a writer by itself."""

    async def refresh(self) -> None:  # noqa: B027 - optional on purpose
        """Find credentials: called on the event loop before the other calls. Raises: KinesisError, StoreUnavailableError."""

    def check_rows(self, rows: pa.RecordBatch, partitions: Partitions) -> None:  # noqa: B027 - optional on purpose
        """From any thread. Raises: ValueError for rows that could be committed and never be published."""

    @abstractmethod
    def prepare(self, schema: pa.Schema, partitions: Partitions, *, may_change: bool = True) -> Mapping[str, str]:
        """Create the table, or compare its columns and partitions; adds columns if that is wanted. Returns the types of the rows' columns.

        `may_change`: else nothing is created or added. Raises: ConfigurationError, also for a table that takes no such rows (`refusal`).
        """

    @abstractmethod
    def columns(self) -> pa.Schema:
        """Return the columns that the newest version has; none if there is no table."""

    @abstractmethod
    def look_again(self, schema: pa.Schema, partitions: Partitions) -> None:
        """Prepare the table once more if it has another version than the last time; it must be there. Raises: as `prepare`."""

    @abstractmethod
    def misfit(self, loaded: Any, columns: Mapping[str, str], partitions: Collection[str]) -> str | None:
        """Return why rows with these columns cannot be added to this version, or would lose values; None: they can be added."""

    @abstractmethod
    def folder(self) -> TableFolder:
        """Where its files are."""

    def describe(self, footer: Any) -> str | None:
        """What the format stores of a file, from its footer."""
        return None

    @abstractmethod
    def load(self) -> Any:
        """The newest version of the table. Raises: NoTableError."""

    @abstractmethod
    def last_number(self, loaded: Any, writer: str) -> int:
        """The last number of a writer in this version; 0: none."""

    @abstractmethod
    def writers(self, loaded: Any) -> Collection[str]:
        """Return writers of the last commits."""

    @abstractmethod
    def commit(
        self, loaded: Any, staged: Sequence[Staged], numbers: Mapping[str, int], retired: Collection[str] = ()
    ) -> None:
        """Add the files, perhaps none, and store the numbers of these writers. Raises: ConflictingCommitError if another process has
        committed a number of one of them after this version. `retired`: writers whose numbers nobody needs."""


def chosen_evolution(properties: Properties, declared: Property[str]) -> str:
    """Return FIXED or EVOLVE. Columns that are inferred need EVOLVE, and imply it. Raises: ConfigurationError."""
    if is_inferred(properties):
        if properties.is_set(declared) and properties.value(declared) != "EVOLVE":
            reason = f"{SCHEMA.key}=INFER adds columns"
            raise ConfigurationError(declared.key, properties.value(declared), "EVOLVE", reason=reason)
        return "EVOLVE"
    return properties.value(declared)


def types_by_path(fields: Iterable[Any]) -> dict[str, str]:
    """Return the types of the columns of Delta Lake or Iceberg, and of what is inside them: `address.country`, `tags[]`, `sums[key]`."""
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
        types[path] = str(kind)


def _type_of(field: Any) -> Any:
    return field.field_type if hasattr(field, "field_type") else field.type


def is_in(column: str, path: str) -> bool:
    """Return whether a path of `types_by_path` is this column, or inside it."""
    return path == column or path.startswith((f"{column}.", f"{column}["))


def differing(wanted: Mapping[str, str], there: Mapping[str, str]) -> str | None:
    """Return how the columns of rows differ from those of a table, which may have more; each by its path, as `types_by_path` has it."""
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
    """Return the paths that the table lacks, or has with a narrower type. `columns`: the value of the property, FIXED or EVOLVE.

    `may_widen`: whether EVOLVE also takes another type, which the format has checked.

    Raises: ConfigurationError for one of another type or of another case of letters, and for one that is missing and must not be added.
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
            valid = "a table with the types of the records; ALTER TABLE changes it"
            raise ConfigurationError(declared.key, columns, valid, reason=reason)
        if is_other or name not in there:
            missing.append(name)
    if missing and columns == "FIXED":
        reason = f"{table} has no column {', '.join(map(repr, missing))}"
        raise ConfigurationError(declared.key, columns, "EVOLVE, which adds columns", reason=reason)
    return missing
