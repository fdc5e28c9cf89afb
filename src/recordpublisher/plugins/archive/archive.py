"""The state that the readers of all shards of an archive share: its files and documents, and the live stream.

The document of a shard is what the job that wrote the archive has stored about the shard: its parents, its children and its end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from recordpublisher.fetcher.checkpoints.snapshot_format import PARTS_PREFIX
from recordpublisher.fetcher.conditional_store import ConditionalStore, read_document
from recordpublisher.fetcher.leases.position_documents import PositionPart
from recordpublisher.fetcher.pipeline.process_suspension import SuspensionDetector
from recordpublisher.fetcher.shards.read_state import latest
from recordpublisher.fetcher.shards.retention_check import RetentionCheck
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.base import RecordPublisherFactory
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import ARCHIVE_UNPROVEN, ARCHIVE_URI
from recordpublisher.publishers.properties.sink_properties import ARCHIVE
from recordpublisher.publishers.shards import OldestRecord, Shard, stored_shard_from

from ..sinks.archived_shards import AT, BEGIN, HIDDEN, RANGES, SHARDS, ShardDocument
from ..sinks.files.staged_files import ENTRIES
from ..stores.back_ends import back_end_of
from ..stores.by_location import conditional_store_of
from ..stores.durable_files import path_of
from ..stores.folder_store import FolderStore
from .next_step import OrderKey, OrderOf, RangeFile, order_key_of, ranges_of
from .rows import ArchivedRows, DecodeBuffer, JsonRows, MergedFiles, NoRows, OrderedFile, ParquetRows

DOCUMENT_SECONDS = 60.0
"""How long the documents of shards are used before they are read again (seconds), except at the end of a shard's files."""


class Archive:
    """The state that the readers of all shards share: the archive's files, and the last listing of the live stream.

    - `live`: makes the publishers of the live stream, or None if the read ends with the archive.
    - `lister`: lists the shards of the live stream, or None if the read ends with the archive.
    - `accepts_loss`: whether the job continues if records are lost.
    - `allows_unproven`: whether to read files whose names do not show whether records are missing.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        live: RecordPublisherFactory | None,
        lister: LiveLister | None,
        order_of: OrderOf,
        clock: Clock,
        *,
        buffer_bytes: int,
        accepts_loss: bool,
        allows_unproven: bool,
    ) -> None:
        self.catalogue, self.live, self.order_of, self.clock = catalogue, live, order_of, clock
        self.accepts_loss, self.allows_unproven = accepts_loss, allows_unproven
        self.buffer = DecodeBuffer(buffer_bytes)
        self.suspension = SuspensionDetector(clock, lambda seconds: None)
        self._lister = lister
        self.retention = (
            None if lister is None else RetentionCheck(lister.oldest_retained_ms, lister.oldest_record, order_of, clock)
        )
        self._listed: dict[str, dict[str, Shard]] = {}
        self._committed: tuple[float, Sequence[tuple[str, ShardState]]] | None = None
        self._documents: dict[str, tuple[float, Mapping[str, ShardDocument]]] = {}
        self._has_late_beginning = False

    async def list_once(self, stream: str) -> None:
        """List the live stream if it was not listed yet."""
        if self._lister is not None and stream not in self._listed:
            self.on_listed(stream, await self._lister.list_shards(stream))

    def on_listed(self, stream: str, listed: Sequence[Shard]) -> None:
        """Remember a complete listing of the live stream."""
        self._listed[stream] = {shard.shard_id: shard for shard in listed if not shard.is_unlisted}

    def is_live(self, shard: Shard) -> bool:
        """Return whether the live stream lists the shard."""
        return self.live is not None and shard.shard_id in self._listed.get(shard.stream, ())

    async def is_live_now(self, shard: Shard) -> bool:
        """Return whether the live stream lists the shard. The stream is listed again if its last listing lacks the shard."""
        if self.live is not None and self._lister is not None and not self.is_live(shard):
            self.on_listed(shard.stream, await self._lister.list_shards(shard.stream))
        return self.is_live(shard)

    async def document(self, shard: Shard) -> ShardDocument | None:
        """Return what the writing job last stored about a shard (its parents, its end), or None if it has stored nothing."""
        return await self.catalogue.document(shard)

    async def documents(self, stream: str) -> Mapping[str, ShardDocument]:
        """Return what the writing job stored about each shard of the stream, by shard id.

        Raises: ConfigurationError if it stored nothing about a shard that has files, and `allows_unproven` is not set.
        """
        return await self._load(stream, DOCUMENT_SECONDS)

    async def shards(self, stream: str) -> dict[str, Shard]:
        """Return every shard that is archived or listed, by id. A shard that only the archive has is unlisted.

        It is closed if its end is archived, or if the live stream is read and no longer has the shard.
        """
        documents, listed = await self._load(stream, DOCUMENT_SECONDS), self._listed.get(stream, {})
        archived = {name: _shard(each, self.live is not None) for name, each in documents.items()}
        # A listing may lack the parents of a shard, because they have expired. The archive knows them.
        known = {
            name: each if each.parents or name not in archived else replace(each, parents=archived[name].parents)
            for name, each in listed.items()
        }
        return {**archived, **known}

    async def shards_with(self, stream: str, needed: Iterable[str]) -> dict[str, Shard]:
        """Return the shards as `shards` does. If an id in `needed` is missing, first read the documents and list the live stream again."""
        found = await self.shards(stream)
        if all(name in found for name in needed):
            return found
        self._documents.pop(stream, None)
        if self._lister is not None:
            self.on_listed(stream, await self._lister.list_shards(stream))
        return await self.shards(stream)

    async def parents_last_open_ms(self, shard: Shard) -> int | None:
        """Return the latest time at which an archived parent of a shard was open (epoch ms), or None if not known.

        A parent that had records, and has no file left, does not count: its files were deleted, or were not copied, and perhaps the first
        files of the shard too.
        """
        documents = await self._load(shard.stream, DOCUMENT_SECONDS)
        parents = [documents[parent] for parent in shard.parents if parent in documents]
        return latest(*[each.open_ms for each in parents if not await self._has_lost_files(each)])

    async def _has_lost_files(self, document: ShardDocument) -> bool:
        had_records = document.end is not None and document.end.through not in (AT, BEGIN)
        return had_records and not await self.catalogue.files(_shard(document, has_live=False), again=False)

    async def tip_ms(self, shard: Shard, place: OrderKey | None, *, again: bool) -> int | None:
        """Return the latest time at which the writing job saw no record after `place` in the shard (epoch ms).

        Return None if that is not known. It is known only for the newest position that the writing job has stored.

        `again`: whether to read the stored positions again, even if they were read less than `DOCUMENT_SECONDS` ago.
        """
        at = self.clock.monotonic()
        if again or self._committed is None or at - self._committed[0] >= DOCUMENT_SECONDS:
            self._committed = at, await self.catalogue.committed()
        states = [state for key, state in self._committed[1] if key == shard.key and state.position is not None]
        return latest(
            *(each.tip_ms for each in states if each.position and order_key_of(each.position, self.order_of) == place)
        )

    async def oldest_record(self, shard: Shard) -> OldestRecord | None:
        """Return the oldest record that the live stream still has of a shard, or None without a live stream."""
        return None if self._lister is None else await self._lister.oldest_record(shard)

    def may_warn_of_late_beginning(self) -> bool:
        """Return True at the first call only, so that a job warns once that older files of shards are missing."""
        is_first, self._has_late_beginning = not self._has_late_beginning, True
        return is_first

    async def close(self) -> None:
        """Close the catalogue."""
        await self.catalogue.close()

    async def _load(self, stream: str, seconds: float) -> Mapping[str, ShardDocument]:
        known = self._documents.get(stream)
        now = self.clock.monotonic()
        if known is None or now - known[0] >= seconds:
            names = await self.catalogue.shard_ids(stream)
            documents = await self.catalogue.documents(stream)
            if unknown := sorted(names - documents.keys()):
                self._check_unproven(stream, unknown[0])
                documents = {**{name: ShardDocument(stream, name) for name in unknown}, **documents}
            known = self._documents[stream] = now, documents
        return known[1]

    def _check_unproven(self, stream: str, shard_id: str) -> None:
        if not self.allows_unproven:
            reason = (
                f"the files of {stream}/{shard_id} in {self.catalogue.place} were written without {ARCHIVE.key}, so nothing says which "
                "shards come after it, and records between its files may be missing"
            )
            raise ConfigurationError(
                ARCHIVE_UNPROVEN.key, "false", "true, to read them although records may be missing", reason=reason
            )


class LiveLister(Protocol):
    """Lists the shards of the live stream. Finds the oldest record that a shard still has, and which records have expired."""

    async def list_shards(self, stream: str) -> list[Shard]:
        """Return every shard that the stream lists."""

    async def oldest_record(self, shard: Shard) -> OldestRecord | None:
        """Return the oldest record that the stream still has of a shard."""

    async def oldest_retained_ms(self, stream: str) -> int | None:
        """Return the arrival time before which the stream has dropped its records (epoch ms)."""


def _shard(document: ShardDocument, has_live: bool) -> Shard:
    entries: dict[str, Any] = msgspec.to_builtins(document)
    return replace(stored_shard_from(entries), closed=has_live or document.end is not None, is_unlisted=True)


# --- the files of an archive in a folder or an object store -------------------------------------------------------------------

GETS_AT_ONCE = 16
DELTA, ICEBERG = "delta:", "iceberg:"
"""The prefixes of `flink.archive.uri` that name a table."""
_SUFFIXES = (".parquet", ".jsonl")


class Catalogue(Protocol):
    """The files and documents of an archive. They may change between calls, because the jobs that write the archive may be running."""

    place: str
    """Where the archive is, for messages."""

    async def documents(self, stream: str) -> Mapping[str, ShardDocument]:
        """Return what the writing job stored about each shard of the stream, by shard id.

        Raises: StoreUnavailableError if the archive cannot be reached; StateError if a retry cannot help.
        """

    async def document(self, shard: Shard) -> ShardDocument | None:
        """Return what the writing job stored about a shard, or None if nothing. Raises: the errors of `documents`."""

    async def shard_ids(self, stream: str) -> Set[str]:
        """Return the ids of the shards that have files. Raises: the errors of `files`."""

    async def files(self, shard: Shard, *, again: bool) -> Sequence[RangeFile]:
        """Return the shard's files in reading order, grouped by range (see `RangeFile`). If `again` is set, list the files again.

        Raises: StoreUnavailableError if the archive cannot be reached; StateError if a retry cannot help.
        """

    async def committed(self) -> Sequence[tuple[str, ShardState]]:
        """Return the positions that the writing jobs have stored with the archive, each with its `Shard.key`."""

    async def open(self, file: RangeFile) -> ArchivedRows:
        """Open the files that `file` names. Raises: FileNotFoundError if one is gone; StateError if one cannot be read."""

    async def close(self) -> None:
        """Close the connections to the archive."""


class ArchiveFiles(Protocol):
    """Lists and opens the files of an archive."""

    place: str
    """Where the archive is, for messages."""

    async def stores(self) -> tuple[ConditionalStore, ConditionalStore | None]:
        """Return the store of the shards' documents, and the store of the sink's positions.

        The second is None if the positions are not stored with the files.
        """

    async def paths(self, prefix: str) -> list[str]:
        """Return the paths of all files below the folder `prefix`."""

    async def opened(self, path: str) -> ArchivedRows:
        """Open a file. Raises: FileNotFoundError if it is gone; StateError if it cannot be read."""


def files_at(uri: str, properties: Properties, order_of: OrderOf) -> ArchiveFiles:
    """Return the files that a file sink wrote. Raises: ConfigurationError if the folder `uri` does not exist or holds a table."""
    is_remote = back_end_of(uri).has_objects
    return _Objects(uri, properties, order_of) if is_remote else _Folder(uri, order_of)


class FileCatalogue:
    """The catalogue of an archive whose file names say which records each file has. It keeps the last listing."""

    def __init__(self, files: ArchiveFiles, order_of: OrderOf) -> None:
        self._order_of, self._files = order_of, files
        self.place = files.place
        self._found: tuple[ConditionalStore, ConditionalStore | None] | None = None
        self._opening = asyncio.Lock()
        self._listed: dict[tuple[str, str], list[tuple[str, str]]] | None = None
        self._has_partitions = False
        self._listing = asyncio.Lock()

    async def documents(self, stream: str) -> Mapping[str, ShardDocument]:
        """Read what the writing job stored about each shard of the stream, by shard id."""
        shards, _ = await self._stores()
        stored, place = await shards.list(f"{stream}/"), shards.place
        found = [read_document(each.value, ShardDocument, f"{name} in {place}", 1) for name, each in stored.items()]
        return {document.id: document for document in found}

    async def document(self, shard: Shard) -> ShardDocument | None:
        """Read what the writing job stored about a shard."""
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
        """Return the ids of the shards that have files in the last listing."""
        async with self._listing:
            return {shard_id for name, shard_id in await self._all(again=False) if name == stream}

    async def _all(self, *, again: bool) -> dict[tuple[str, str], list[tuple[str, str]]]:
        if self._listed is None or again:
            self._listed = _by_shard(await self._files.paths(""))
            paths = [path for found in self._listed.values() for path, _ in found]
            # An empty archive does not tell yet whether its sink uses partitions, and is cheap to list.
            self._has_partitions = not any(paths) or any("=" in path for path in paths)
        return self._listed

    async def files(self, shard: Shard, *, again: bool) -> Sequence[RangeFile]:
        """Return the shard's files, grouped by range. If `again` is set, list them again."""
        async with self._listing:
            is_new = self._listed is None
            listed = await self._all(again=again and self._has_partitions)
            if again and not is_new and not self._has_partitions:
                folders = (f"{shard.key}/", f"{RANGES}/{shard.key}/")
                paths = [path for folder in folders for path in await self._files.paths(folder)]
                listed[shard.stream, shard.shard_id] = _by_shard(paths).get((shard.stream, shard.shard_id), [])
            return ranges_of(listed.get((shard.stream, shard.shard_id), ()), self._order_of)

    async def committed(self) -> Sequence[tuple[str, ShardState]]:
        """Return the positions that the sink has stored with its files, for each worker that the job has had.

        Nothing is found for an Iceberg table: its sink stores the positions elsewhere.
        """
        found: list[tuple[str, ShardState]] = []
        _, entries = await self._stores()
        for name, each in ({} if entries is None else await entries.list(PARTS_PREFIX)).items():
            part = PositionPart.from_bytes(each.value, f"{name} in {entries.place if entries else ''}")
            found += [(key.shard, stored.state) for key, stored in part.positions.items()]
        return found

    async def open(self, file: RangeFile) -> ArchivedRows:
        """Open the files that `file` names, merged in the order of sequence numbers."""
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
    """Return the files of each shard by stream and shard id. Each file is its path and its name without the suffix.

    The path is empty if the name stands for a range of which no record was written.
    """
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
    """Return an error if the file names `names` in a folder show that it is a table, else None."""
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
            raise ConfigurationError(
                ARCHIVE_URI.key, uri, "a folder that a file sink has written", reason="there is no such folder"
            )
        if error := _is_table(uri, (name for name in os.listdir(self._root) if (self._root / name).is_dir())):
            raise error

    async def stores(self) -> tuple[ConditionalStore, ConditionalStore]:
        return FolderStore(self._root / SHARDS, None), FolderStore(self._root / HIDDEN / ENTRIES, None)

    async def paths(self, prefix: str) -> list[str]:
        return await asyncio.to_thread(self._list, prefix)

    def _list(self, prefix: str) -> list[str]:
        found = []
        for folder, folders, files in os.walk(self._root / prefix):
            # Only the sink's own folder is left out: the name of a stream may begin with a dot.
            folders[:] = [name for name in folders if name != HIDDEN]
            below = Path(folder).relative_to(self._root).as_posix()
            found += [f"{below}/{name}" for name in files]
        return found

    async def opened(self, path: str) -> ArchivedRows:
        file = self._root / path
        source = str(file) if path.endswith(".parquet") else await asyncio.to_thread(file.read_bytes)
        return await _opened(source, f"{self.place}/{path}", self._order_of)


class _Objects:
    def __init__(self, uri: str, properties: Properties, order_of: OrderOf) -> None:
        from recordpublisher.plugins.stores.obstore_client import ObjectLocation

        self.place = uri.rstrip("/")
        self._properties, self._order_of = properties, order_of
        self._objects = ObjectLocation(back_end_of(uri).uri_of(self.place), ARCHIVE_URI.key, properties)
        self._slots = asyncio.Semaphore(GETS_AT_ONCE)

    async def stores(self) -> tuple[ConditionalStore, ConditionalStore]:
        key, properties = ARCHIVE_URI.key, self._properties
        shards = conditional_store_of(f"{self.place}/{SHARDS}", key, properties)
        return shards, conditional_store_of(f"{self.place}/{HIDDEN}/{ENTRIES}", key, properties)

    async def paths(self, prefix: str) -> list[str]:
        from recordpublisher.plugins.stores.obstore_client import as_state_errors

        await self._objects.refresh()
        with as_state_errors(self.place):
            found = [meta["path"] async for chunk in self._objects.client.list(prefix or None) for meta in chunk]
        if not prefix and (error := _is_table(self.place, {path.partition("/")[0] for path in found})):
            raise error
        return [path for path in found if not path.startswith(f"{HIDDEN}/")]

    async def opened(self, path: str) -> ArchivedRows:
        return await _opened(await self._content(path), f"{self.place}/{path}", self._order_of)

    async def _content(self, path: str) -> bytes:
        from recordpublisher.plugins.stores.obstore_client import as_state_errors

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
