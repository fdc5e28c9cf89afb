"""Checks that all files of a folder have the same columns, because readers take the folder for one table."""

import msgspec

from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError, write_value
from recordpublisher.fetcher.stored_documents import read_document
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.sinks import PARTITIONS

_NAME, _FORMAT = "columns", 1


class FolderColumns(msgspec.Struct, frozen=True):
    """The type of each column that any file of the folder has, and the names of the partition columns."""

    columns: dict[str, str]
    partitions: list[str]
    format: int = _FORMAT


async def agree(store: ConditionalStore, wanted: FolderColumns, key: str, path: str, *, may_change: bool) -> None:
    """Compare the wanted columns with those of the files in a folder, and store the new ones.

    Several processes may do so at the same time.

    - `key`: the property that has the folder `path`; error messages name it.
    - `may_change`: whether new columns may be stored. If not, the columns are only compared.

    Raises: ConfigurationError if readers could not read the old and the new files as one table; StateError if the stored columns cannot be
    read or written.
    """
    stored = await store.get(_NAME)
    while True:
        there = wanted
        if stored is not None:
            there = read_document(stored.value, FolderColumns, f"{_NAME} in {store.place}", _FORMAT)
        _check(wanted, there, key, path)
        united = FolderColumns(there.columns | wanted.columns, wanted.partitions)
        if not may_change or (stored is not None and united == there):
            return
        try:
            await write_value(store, _NAME, msgspec.json.encode(united), None if stored is None else stored.version)
        except ConflictError as error:  # Another process was faster, so compare with the columns that it has stored.
            stored = error.current
        else:
            return


def _check(wanted: FolderColumns, there: FolderColumns, key: str, path: str) -> None:
    if wanted.partitions != there.partitions:
        reason = f"the files in {path} are partitioned by {', '.join(there.partitions) or 'nothing'}; write to another folder ({key})"
        raise ConfigurationError(
            PARTITIONS.key, ", ".join(wanted.partitions), "the partitions of the folder", reason=reason
        )
    known = {name.casefold(): name for name in there.columns}
    for name, kind in wanted.columns.items():
        same = known.get(name.casefold(), name)
        if same != name or there.columns.get(name, kind) != kind:
            reason = (
                f"files there have a column {same!r} of the type {there.columns[same]}, the records have {name!r} of the type {kind}, and "
                "readers could not read both as one table; keep the name and the type of the field, or write to another folder"
            )
            raise ConfigurationError(key, path, "a folder whose files have the columns of the records", reason=reason)
