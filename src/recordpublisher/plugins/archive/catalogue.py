"""Lists the files and the documents of an archive in a folder or an object store, and opens the files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence, Set
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

from ..sinks.files.archived_shards import EMPTY_RANGES, SHARDS, ShardDocument
from ..sinks.files.staged_files import ENTRIES, HIDDEN
from .ranges import OrderOf, RangeFile, ranges_of
from .rows import ArchivedRows, JsonRows, MergedFiles, NoRows, OrderedFile, ParquetRows

_GETS_AT_ONCE = 16
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


class FileCatalogue:
    """The archive that a file sink wrote. Owns the last listing of its files; reads are planned from the names alone.

    Raises: ConfigurationError if there is no such place, or if it has a table.
    """

    def __init__(self, uri: str, properties: Properties, order_of: OrderOf) -> None:
        self._order_of = order_of
        is_remote = back_end_of(uri) in OBJECT_STORES
        self._files: _Objects | _Folder = _Objects(uri, properties) if is_remote else _Folder(uri)
        self.place = self._files.place
        self._shards, self._entries = self._files.stores()
        self._listed: dict[tuple[str, str], list[tuple[str, str]]] | None = None
        self._has_partitions = False
        self._listing = asyncio.Lock()

    async def documents(self, stream: str) -> Mapping[str, ShardDocument]:
        """Read the documents of the stream's shards."""
        stored = await self._shards.list(f"{stream}/")
        place = self._shards.place
        found = [read_document(each.value, ShardDocument, f"{name} in {place}", 1) for name, each in stored.items()]
        return {document.id: document for document in found}

    async def document(self, shard: Shard) -> ShardDocument | None:
        """Read the document of a shard."""
        if (stored := await self._shards.get(shard.key)) is None:
            return None
        return read_document(stored.value, ShardDocument, f"{shard.key} in {self._shards.place}", 1)

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
                folders = (f"{shard.key}/", f"{EMPTY_RANGES}/{shard.key}/")
                paths = [path for folder in folders for path in await self._files.paths(folder)]
                listed[shard.stream, shard.shard_id] = _by_shard(paths).get((shard.stream, shard.shard_id), [])
            return ranges_of(listed.get((shard.stream, shard.shard_id), ()), self._order_of)

    async def committed(self) -> Sequence[tuple[str, ShardState]]:
        """Read the positions that the sink has stored with its files: those of each worker that the job has been."""
        found: list[tuple[str, ShardState]] = []
        for name, each in (await self._entries.list(PARTS)).items():
            part = PositionPart.from_bytes(each.value, f"{name} in {self._entries.place}")
            found += [(key.shard, stored.state) for key, stored in part.positions.items()]
        return found

    async def open(self, file: RangeFile) -> ArchivedRows:
        """Open the files of a range."""
        opened: list[ArchivedRows] = [await self._opened(path) for path in file.paths]
        if len(opened) > 1:
            return MergedFiles(opened, self._order_of)
        return opened[0] if opened else NoRows()

    async def close(self) -> None:
        """Close the stores."""
        await self._shards.close()
        await self._entries.close()

    async def _opened(self, path: str) -> ArchivedRows:
        name = f"{self.place}/{path}"
        if path.endswith(".jsonl"):
            content = await self._files.content(path)
            return OrderedFile(JsonRows(content, name, asyncio.to_thread), name, self._order_of)
        source = await self._files.source(path)
        rows = await asyncio.to_thread(ParquetRows, source, name, asyncio.to_thread)
        return OrderedFile(rows, name, self._order_of)


def _by_shard(paths: Sequence[str]) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return the files of each shard: paths, with the names without suffix. An empty range has no path."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for path in paths:
        parts = path.split("/")
        if len(parts) < 3:
            continue
        is_empty = path.startswith(f"{EMPTY_RANGES}/")
        if not is_empty and (not path.endswith(_SUFFIXES) or any(part.startswith((".", "_")) for part in parts[:-3])):
            continue
        name = parts[-1] if is_empty else parts[-1].rpartition(".")[0]
        found.setdefault((parts[-3], parts[-2]), []).append(("" if is_empty else path, name))
    return found


class _Folder:
    def __init__(self, uri: str) -> None:
        self._root = Path(path_of(uri, ARCHIVE_URI.key)).absolute()
        self.place = str(self._root)
        if not self._root.is_dir():
            raise ConfigurationError(ARCHIVE_URI.key, uri, "a folder that a file sink has written")
        if (self._root / "_delta_log").is_dir() or (self._root / "metadata").is_dir():
            raise ConfigurationError(
                ARCHIVE_URI.key, uri, reason="archives in tables cannot be read yet, only those of parquet and jsonl"
            )

    def stores(self) -> tuple[ConditionalStore, ConditionalStore]:
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

    async def source(self, path: str) -> str:
        """Return where pyarrow finds the file."""
        return str(self._root / path)

    async def content(self, path: str) -> bytes:
        """Read a file."""
        return await asyncio.to_thread((self._root / path).read_bytes)


class _Objects:
    def __init__(self, uri: str, properties: Properties) -> None:
        from recordpublisher.plugins.stores.aws_stores import SCHEMES
        from recordpublisher.plugins.stores.object_storage import ObjectLocation

        self.place = uri.rstrip("/")
        self._properties = properties
        parts = urlsplit(self.place)
        location = f"s3://{parts.netloc}{parts.path}" if parts.scheme in SCHEMES else self.place
        self._objects = ObjectLocation(location, ARCHIVE_URI.key, properties)
        self._slots = asyncio.Semaphore(_GETS_AT_ONCE)

    def stores(self) -> tuple[ConditionalStore, ConditionalStore]:
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
        return [path for path in found if not path.startswith(f"{HIDDEN}/")]

    async def source(self, path: str) -> bytes:
        """Read an object, which is one GET."""
        return await self.content(path)

    async def content(self, path: str) -> bytes:
        """Read an object."""
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
