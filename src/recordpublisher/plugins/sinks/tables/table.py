"""LakeTable: what a sink needs of a table format; and what the columns of a table must be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from recordpublisher.fetcher.committing_sink import Staged
from recordpublisher.plugins.columns.partitions import Partitions
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.declaration import Property

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

    async def refresh(self) -> None:  # noqa: B027 - optional on purpose
        """Find credentials: called on the event loop before the other calls. Raises: KinesisError, StoreUnavailableError."""

    def check_rows(self, rows: pa.RecordBatch, partitions: Partitions) -> None:  # noqa: B027 - optional on purpose
        """From any thread. Raises: ValueError for rows that could be committed and never be published."""

    @abstractmethod
    def prepare(self, schema: pa.Schema, partitions: Partitions, *, may_change: bool = True) -> None:
        """Create the table, or compare its columns and partitions; adds columns if that is wanted. `may_change`: else nothing is created or
        added. Raises: ConfigurationError."""

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
    def commit(self, loaded: Any, staged: Sequence[Staged]) -> None:
        """Add the files of one writer, with the number of the last one. Raises: ConflictingCommitError."""


def check_columns(
    wanted: Mapping[str, Any], there: Mapping[str, Any], table: str, declared: Property[str], columns: str
) -> list[str]:
    """The columns that the table lacks. `columns`: the value of the property, FIXED or EVOLVE.

    Raises: ConfigurationError for one of another type, and for one that is missing and must not be added.
    """
    for name, kind in wanted.items():
        if name in there and there[name] != kind:
            reason = f"column {name!r} is {there[name]} in {table}, and {kind} in the records"
            raise ConfigurationError(declared.key, columns, "a table with the types of the records", reason=reason)
    missing = [name for name in wanted if name not in there]
    if missing and columns == "FIXED":
        reason = f"{table} has no column {', '.join(map(repr, missing))}"
        raise ConfigurationError(declared.key, columns, "EVOLVE, which adds columns", reason=reason)
    return missing
