"""Lists the files and the documents of an archive in a folder or an object store, and opens the files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from recordpublisher.fetcher.checkpoints.snapshot import PARTS
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.leases.documents.group_store import PositionPart
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.stored_documents import read_document
from recordpublisher.plugins.stores.by_location import OBJECT_STORES, back_end_of, conditional_store_of
from recordpublisher.plugins.stores.durable_files import path_of
from recordpublisher.plugins.stores.folder_store import FolderStore
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.properties.groups.reading import ARCHIVE_URI
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from ..sinks.archived_shards import HIDDEN, RANGES, SHARDS, ShardDocument
from ..sinks.files.staged_files import ENTRIES
from .ranges import OrderOf, RangeFile, ranges_of
from .rows import ArchivedRows, JsonRows, MergedFiles, NoRows, OrderedFile, ParquetRows

GETS_AT_ONCE = 16
DELTA, ICEBERG = "delta:", "iceberg:"
"""The beginnings of `flink.archive.uri` for tables."""
_SUFFIXES = (".parquet", ".jsonl")


class Catalogue(Protocol):
    """The files and documents of an archive. Its writers may be running."""

    place: str
    """Where the archive is, for messages."""

    async def documents(self, stream: str) -> Mapping[str, ShardDocument]:
        """Return the documents of the stream's shards, by shard id. Raises: StoreUnavailableError, StateError."""

    async def document(self, shard: Shard) -> ShardDocument | None:
        """Return the document of one shard, or None if it has none. Raises: the errors of `documents`."""

    async def shard_ids(self, stream: str) -> Set[str]:
        """Return the ids of the shards that have files. Raises: the errors of `files`."""

    async def files(self, shard: Shard, *, again: bool) -> Sequence[RangeFile]:
        """Return the ranges of a shard's files in order. With `again` the files are listed now.

        Raises: StoreUnavailableError if the place cannot be reached now; StateError if waiting does not help.
        """

    async def committed(self) -> Sequence[tuple[str, ShardState]]:
        """Return the positions that jobs which write the archive have stored with it, each with its `Shard.key`."""

    async def open(self, file: RangeFile) -> ArchivedRows:
        """Open the files of a range. Raises: FileNotFoundError if they are gone; StateError if they cannot be read."""

    async def close(self) -> None:
        """Close what was opened."""


class Files(Protocol):
    """Where the files of an archive are."""

    place: str
    """The location in words."""

    async def stores(self) -> tuple[ConditionalStore, ConditionalStore | None]:
        """Return the store of the documents, and that of the entries if it is next to the files."""

    async def paths(self, prefix: str) -> list[str]:
        """Return the paths of all files below a folder."""

    async def opened(self, path: str) -> ArchivedRows:
        """Open a file. Raises: FileNotFoundError if it is gone; StateError if it cannot be read."""


def files_at(uri: str, properties: Properties, order_of: OrderOf) -> Files:
    """Return the files that a file sink wrote. Raises: ConfigurationError if there is no such place, or if it has a table."""
    is_remote = back_end_of(uri) in OBJECT_STORES
    return _Objects(uri, properties, order_of) if is_remote else _Folder(uri, order_of)


class FileCatalogue:
    """The archive that a sink wrote. Owns the last listing of its files; reads are planned from the names alone."""

    def __init__(self, files: Files, order_of: OrderOf) -> None:
        self._order_of, self._files = order_of, files
        self.place = files.place
        self._found: tuple[ConditionalStore, ConditionalStore | None] | None = None
        self._opening = asyncio.Lock()
        self._listed: dict[tuple[str, str], list[tuple[str, str]]] | None = None
        self._has_partitions = False
        self._listing = asyncio.Lock()

    async def documents(self, stream: str) -> Mapping[str, ShardDocument]:
        """Read the documents of the stream's shards."""
        shards, _ = await self._stores()
        stored, place = await shards.list(f"{stream}/"), shards.place
        found = [read_document(each.value, ShardDocument, f"{name} in {place}", 1) for name, each in stored.items()]
        return {document.id: document for document in found}

    async def document(self, shard: Shard) -> ShardDocument | None:
        """Read the document of a shard."""
        shards, _ = await self._stores()
        if (stored := await shards.get(shard.key)) is None:
            return None
        return read_document(stored.value, ShardDocument, f"{shard.key} in {shards.place}", 1)

    async def _stores(self) -> tuple[ConditionalStore, ConditionalStore | None]:
        async with self._opening:
            if self._found is None:
                self._found = await self._files.stores()
            return self._found

    async def shard_ids(self, stream: str) -> Set[str]:
        """Return the shards of the last listing."""
        async with self._listing:
            return {shard_id for name, shard_id in await self._all(again=False) if name == stream}

    async def _all(self, *, again: bool) -> dict[tuple[str, str], list[tuple[str, str]]]:
        if self._listed is None or again:
            self._listed = _by_shard(await self._files.paths(""))
            self._has_partitions = any("=" in path for found in self._listed.values() for path, _ in found)
        return self._listed

    async def files(self, shard: Shard, *, again: bool) -> Sequence[RangeFile]:
        """Return the ranges of a shard's files."""
        async with self._listing:
            is_new = self._listed is None
            listed = await self._all(again=again and self._has_partitions)
            if again and not is_new and not self._has_partitions:
                folders = (f"{shard.key}/", f"{RANGES}/{shard.key}/")
                paths = [path for folder in folders for path in await self._files.paths(folder)]
                listed[shard.stream, shard.shard_id] = _by_shard(paths).get((shard.stream, shard.shard_id), [])
            return ranges_of(listed.get((shard.stream, shard.shard_id), ()), self._order_of)

    async def committed(self) -> Sequence[tuple[str, ShardState]]:
        """Read the positions that the sink has stored with its files: those of each worker that the job has been.

        A job that writes to Iceberg stores them elsewhere.
        """
        found: list[tuple[str, ShardState]] = []
        _, entries = await self._stores()
        for name, each in ({} if entries is None else await entries.list(PARTS)).items():
            part = PositionPart.from_bytes(each.value, f"{name} in {entries.place if entries else ''}")
            found += [(key.shard, stored.state) for key, stored in part.positions.items()]
        return found

    async def open(self, file: RangeFile) -> ArchivedRows:
        """Open the files of a range."""
        opened: list[ArchivedRows] = [await self._files.opened(path) for path in file.paths]
        if len(opened) > 1:
            return MergedFiles(opened, self._order_of)
        return opened[0] if opened else NoRows()

    async def close(self) -> None:
        """Close the stores."""
        for store in self._found or ():
            if store is not None:
                await store.close()


def _by_shard(paths: Sequence[str]) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return the files of each shard: paths, with the names without suffix. An empty range has no path."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for path in paths:
        parts = path.split("/")
        if len(parts) < 3:
            continue
        is_empty = path.startswith(f"{RANGES}/")
        if not is_empty and (not path.endswith(_SUFFIXES) or any(part.startswith((".", "_")) for part in parts[:-3])):
            continue
        name = parts[-1] if is_empty else parts[-1].rpartition(".")[0]
        found.setdefault((parts[-3], parts[-2]), []).append(("" if is_empty else path, name))
    return found


def _is_table(uri: str, names: Iterable[str]) -> ConfigurationError | None:
    """Return the error for a location that has a table, from the names in its folder."""
    if {"_delta_log", "metadata"}.isdisjoint(found := {*names}):
        return None
    form = f"{DELTA}{uri}" if "_delta_log" in found else f"{ICEBERG}namespace.table"
    return ConfigurationError(ARCHIVE_URI.key, uri, form, reason="it is the folder of a table")


class _Folder:
    def __init__(self, uri: str, order_of: OrderOf) -> None:
        self._order_of = order_of
        self._root = Path(path_of(uri, ARCHIVE_URI.key)).absolute()
        self.place = str(self._root)
        if not self._root.is_dir():
            raise ConfigurationError(ARCHIVE_URI.key, uri, "a folder that a file sink has written")
        if error := _is_table(uri, (name for name in os.listdir(self._root) if (self._root / name).is_dir())):
            raise error

    async def stores(self) -> tuple[ConditionalStore, ConditionalStore]:
        """Return the store of the documents, and that of the entries."""
        return FolderStore(self._root / SHARDS, None), FolderStore(self._root / HIDDEN / ENTRIES, None)

    async def paths(self, prefix: str) -> list[str]:
        """Return the paths of all files below a folder."""
        return await asyncio.to_thread(self._list, prefix)

    def _list(self, prefix: str) -> list[str]:
        found = []
        for folder, folders, files in os.walk(self._root / prefix):
            folders[:] = [name for name in folders if not name.startswith(".")]
            below = Path(folder).relative_to(self._root).as_posix()
            found += [f"{below}/{name}" for name in files]
        return found

    async def opened(self, path: str) -> ArchivedRows:
        """Open a file."""
        file = self._root / path
        source = str(file) if path.endswith(".parquet") else await asyncio.to_thread(file.read_bytes)
        return await _opened(source, f"{self.place}/{path}", self._order_of)


class _Objects:
    def __init__(self, uri: str, properties: Properties, order_of: OrderOf) -> None:
        from recordpublisher.plugins.stores.aws_stores import SCHEMES
        from recordpublisher.plugins.stores.object_storage import ObjectLocation

        self.place = uri.rstrip("/")
        self._properties, self._order_of = properties, order_of
        parts = urlsplit(self.place)
        location = f"s3://{parts.netloc}{parts.path}" if parts.scheme in SCHEMES else self.place
        self._objects = ObjectLocation(location, ARCHIVE_URI.key, properties)
        self._slots = asyncio.Semaphore(GETS_AT_ONCE)

    async def stores(self) -> tuple[ConditionalStore, ConditionalStore]:
        """Return the store of the documents, and that of the entries."""
        key, properties = ARCHIVE_URI.key, self._properties
        shards = conditional_store_of(f"{self.place}/{SHARDS}", key, properties)
        return shards, conditional_store_of(f"{self.place}/{HIDDEN}/{ENTRIES}", key, properties)

    async def paths(self, prefix: str) -> list[str]:
        """Return the names of all objects below a prefix."""
        from recordpublisher.plugins.stores.object_storage import as_state_errors

        await self._objects.refresh()
        with as_state_errors(self.place):
            found = [meta["path"] async for chunk in self._objects.client.list(prefix or None) for meta in chunk]
        if not prefix and (error := _is_table(self.place, {path.partition("/")[0] for path in found})):
            raise error
        return [path for path in found if not path.startswith(f"{HIDDEN}/")]

    async def opened(self, path: str) -> ArchivedRows:
        """Open an object, which is one GET."""
        return await _opened(await self._content(path), f"{self.place}/{path}", self._order_of)

    async def _content(self, path: str) -> bytes:
        from recordpublisher.plugins.stores.object_storage import as_state_errors

        async with self._slots:
            await self._objects.refresh()
            try:
                with as_state_errors(self.place):
                    response: Any = await self._objects.client.get_async(path)
                    return bytes(await response.bytes_async())
            except StateError as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    raise error.__cause__ from None
                raise


async def _opened(source: str | bytes, name: str, order_of: OrderOf) -> ArchivedRows:
    if isinstance(source, bytes) and name.endswith(".jsonl"):
        return OrderedFile(JsonRows(source, name, asyncio.to_thread), name, order_of)
    rows = await asyncio.to_thread(ParquetRows, source, name, asyncio.to_thread)
    return OrderedFile(rows, name, order_of)
