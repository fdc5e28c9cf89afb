"""Lists and opens the files of an archive in a table of Delta Lake or Iceberg, even if another program has joined files.

The sink stores a proof (`RangeProof`) with each of its files: which range the file is of, and how many rows it has. Files that another
program wrote have no proof.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from math import inf
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recordpublisher.fetcher.conditional_store import ConditionalStore, pause_after_conflict
from recordpublisher.publishers.errors import ConfigurationError, StateError, StoreUnavailableError
from recordpublisher.publishers.positions import WHOLE_RECORD, SequenceNumber
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import ARCHIVE_UNPROVEN, ARCHIVE_URI
from recordpublisher.publishers.properties.sink_properties import DELTA_STORAGE
from recordpublisher.publishers.safe_text import counted

from ..sinks.archived_shards import RANGES, SHARDS, position_text
from ..sinks.tables.staged_data_files import RangeProof, file_id
from ..sinks.tables.table import LakeTable, NoTableError
from ..sinks.tables.table_folder import TableFolder
from ..stores.by_location import conditional_store_of
from .archive import DELTA, GETS_AT_ONCE, ArchiveFiles
from .next_step import OrderKey, OrderOf, RangeFile, ranges_of
from .rows import ArchivedRows, MergedFiles, OrderedFile, ParquetRows

log = logging.getLogger("recordpublisher.archive")
T = TypeVar("T")
_MOST_MERGED = 16
"""Most row groups that are decoded together because the sequence numbers of their rows overlap."""
_FOLDER_SECONDS = 60.0
_MOST_LISTINGS = 5
"""Most attempts to list a table whose files are rewritten and deleted at the same time."""
_KEYS = {
    "stream": pa.string(),
    "shardId": pa.string(),
    "sequenceNumber": pa.string(),
    "subSequenceNumber": pa.int64(),
}
"""The columns that say which rows a file has, and the types to which they are cast.

Another program may have written texts as string views. pyarrow cannot filter these.
"""


def table_files(uri: str, properties: Properties, order_of: OrderOf) -> ArchiveFiles:
    """Return the files of a table, `delta:LOCATION` or `iceberg:namespace.table`. Raises: ConfigurationError if it is not valid."""
    kind, _, name = uri.partition(":")
    if f"{kind}:" == DELTA:
        from ..sinks.tables.delta import ENTRIES, DeltaLakeTable
        from ..sinks.tables.table_location import TableLocation

        storage = TableLocation(name, ARCHIVE_URI.key, properties, properties.with_prefix(DELTA_STORAGE))
        delta = DeltaLakeTable(storage, "FIXED")
        return _TableFiles(delta, f"Delta table {storage.uri}", properties, order_of, ENTRIES)
    from ..sinks.tables.iceberg import IcebergTable

    iceberg = IcebergTable(name, properties)
    return _TableFiles(iceberg, f"Iceberg table {iceberg.place}", properties, order_of, None)


class RowPiece(NamedTuple):
    """A *piece* of a file: the rows of one shard in one row group of a Parquet file.

    The files that another program wrote are read in pieces, because they may have rows of many shards and ranges.

    - `group`: the number of the row group in the file.
    - `rows`: number of rows.
    - `first`, `last`: the lowest and the highest position of the rows, each as a sort key and as text.
    """

    path: str
    group: int
    rows: int
    first: tuple[OrderKey, str]
    last: tuple[OrderKey, str]


class FileOfPieces(NamedTuple):
    """Pieces (`RowPiece`) that are read together, as if they were one file.

    - `name`: a name for them that says which range they cover, in the form that `ranges_of` parses.
    - `is_proven`: whether it is certain that no row is missing between the pieces.
    """

    name: str
    pieces: Sequence[RowPiece]
    is_proven: bool


class _TableFiles:
    """The files of an archive in a table. Each has a name that says which range of sequence numbers it covers (see `ranges_of`).

    A file that another program wrote has no range of its own. It is read in pieces (`RowPiece`), and pieces whose rows overlap have one
    name together.

    - `_sources`: what to read for each name: the path of a file, or pieces.
    - `_pieces`: the pieces of each file that is read in pieces, by path and shard. They are found once, because a file never changes.
    """

    def __init__(
        self, table: LakeTable, place: str, properties: Properties, order_of: OrderOf, entries: str | None
    ) -> None:
        self.place = place
        self._table, self._properties, self._order_of, self._entries = table, properties, order_of, entries
        self._lock = threading.Lock()
        self._slots = asyncio.Semaphore(GETS_AT_ONCE)
        self._sources: dict[str, str | Sequence[RowPiece]] = {}
        self._pieces: dict[str, Mapping[str, Sequence[RowPiece]]] = {}
        self._unproven: set[str] = set()
        self._newest: tuple[float, TableFolder] | None = None

    async def stores(self) -> tuple[ConditionalStore, ConditionalStore | None]:
        location = await self._called(self._table.location)
        places = [f"{location}/{name}" for name in (SHARDS, self._entries) if name is not None]
        shards, *entries = [conditional_store_of(place, ARCHIVE_URI.key, self._properties) for place in places]
        return shards, entries[0] if entries else None

    async def paths(self, prefix: str) -> list[str]:
        """Return the files of all shards, or only of the shard `prefix`, in the newest version of the table."""
        if prefix.startswith(RANGES):
            return []  # The names of empty ranges come with the files.
        for attempt in range(_MOST_LISTINGS):
            try:
                return await self._called(lambda: self._list(prefix.rstrip("/")))
            except FileNotFoundError as error:
                log.info("a file of %s has disappeared, so the table is loaded again: %s", self.place, error)
            await pause_after_conflict(attempt)
        raise StoreUnavailableError(
            f"{self.place} was changed during each of {_MOST_LISTINGS} attempts to list it; try again"
        )

    async def opened(self, path: str) -> ArchivedRows:
        """Open the file or the pieces that the name `path` stands for.

        Raises: FileNotFoundError if no listing has returned the name; StateError if too many pieces overlap.
        """
        source = self._sources.get(path)
        if source is None:
            raise FileNotFoundError(path)
        async with self._slots:
            folder = await self._folder()
            if isinstance(source, str):
                return await self._reading(self._opened, folder, source)
            if len(source) > _MOST_MERGED:
                raise StateError(
                    f"{source[0].path} of {self.place} cannot be read: another program has sorted its rows in another order, so the rows "
                    f"of {len(source)} row groups overlap, of which at most {_MOST_MERGED} can be merged. Rewrite the table in the order "
                    "of sequenceNumber"
                )
            parts = [await self._reading(self._opened_piece, folder, piece, path) for piece in source]
            return MergedFiles(parts, self._order_of)

    async def _folder(self) -> TableFolder:
        """Return the folder of the table, with valid credentials.

        Credentials from a catalogue are kept while they are valid. Otherwise the catalogue would be asked for each file.
        """
        now = asyncio.get_running_loop().time()
        if self._newest is None or now - self._newest[0] >= _FOLDER_SECONDS:
            self._newest = now, await self._called(self._table.folder)
        else:
            await self._table.refresh()
        return self._newest[1]

    def _opened(self, folder: TableFolder, path: str) -> ArchivedRows:
        rows = ParquetRows(folder.source(path, whole=True), f"{self.place}/{path}", asyncio.to_thread)
        return OrderedFile(rows, f"{self.place}/{path}", self._order_of)

    def _opened_piece(self, folder: TableFolder, piece: RowPiece, path: str) -> ArchivedRows:
        source = folder.source(piece.path, whole=False)
        shard = "/".join(path.split("/")[:2])
        return ParquetRows(source, f"{self.place}/{piece.path}", asyncio.to_thread, (piece.group, shard))

    async def _reading(self, call: Callable[..., T], *arguments: Any) -> T:
        try:
            return await asyncio.to_thread(call, *arguments)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreUnavailableError(f"{self.place} cannot be used: {error}") from error

    async def _called(self, call: Callable[[], T]) -> T:
        def alone() -> T:
            with self._lock:
                return call()

        await self._table.refresh()
        try:
            return await self._reading(alone)
        except NoTableError as error:
            raise ConfigurationError(
                ARCHIVE_URI.key, self.place, "a table that a sink has written", reason="the catalog has no such table"
            ) from error

    # --- listing ----------------------------------------------------------------------------------------------------------------

    def _list(self, only: str) -> list[str]:
        live = self._table.live_files(self._table.load())
        folder, by_id = self._table.folder(), {file_id(path): path for path in live}
        if deleted := next((path for path, has_deleted in live.items() if has_deleted), None):
            raise StateError(
                f"rows of {deleted} of {self.place} are marked as deleted, and are still in the file. Rewrite the file without "
                "them: REORG TABLE ... APPLY (PURGE) of Delta Lake, rewrite_data_files of Iceberg"
            )
        with ThreadPoolExecutor(GETS_AT_ONCE) as threads:
            streams = [] if only else folder.names(RANGES)
            below = threads.map(
                lambda stream: [f"{stream}/{shard}" for shard in folder.names(f"{RANGES}/{stream}")], streams
            )
            shards = [only] if only else list(chain.from_iterable(below))
            names = dict(zip(shards, threads.map(lambda shard: folder.names(f"{RANGES}/{shard}"), shards), strict=True))
        proofs = {shard: list(filter(None, map(RangeProof.parsed, found))) for shard, found in names.items()}
        if not only:
            proven = {proof.file for found in proofs.values() for proof in found}
            self._unproven = {path for name, path in by_id.items() if name is not None and name not in proven}
        foreign = [path for path in live if file_id(path) is None or path in self._unproven]
        for path in foreign:
            self._scan(folder, path)
        shards = sorted({*names, *(() if only else (shard for path in foreign for shard in self._pieces[path]))})
        found: list[str] = []
        for shard in shards:
            sources = self._of_shard(folder, shard, proofs.get(shard, []), by_id, names.get(shard, ()), foreign)
            self._sources = {name: source for name, source in self._sources.items() if not name.startswith(f"{shard}/")}
            self._sources |= sources
            empty = [name for name in names.get(shard, ()) if RangeProof.parsed(name) is None]
            found += [*sources, *(f"{RANGES}/{shard}/{name}" for name in empty)]
        return found

    def _of_shard(
        self,
        folder: TableFolder,
        shard: str,
        proofs: Sequence[RangeProof],
        by_id: Mapping[str | None, str],
        names: Sequence[str],
        foreign: Sequence[str],
    ) -> dict[str, str | Sequence[RowPiece]]:
        """Return what to read for a shard, by name: the path of a file, or pieces (`RowPiece`).

        - `proofs`: the proofs of the shard's files.
        - `by_id`: the paths of the table's files, by the id that a proof has.
        - `names`: names that stand for the shard's proofs, and for its ranges without records.
        - `foreign`: the paths of the files that another program wrote.
        """
        found: dict[str, str | Sequence[RowPiece]] = {}
        there: dict[str, dict[int, RangeProof]] = {}
        for proof in proofs:
            text = f"{proof.covered}.{proof.part}of{proof.parts}.{proof.file[:12]}"
            if proof.file in by_id:
                found[f"{shard}/{text}.parquet"] = by_id[proof.file]
                there.setdefault(str(proof.covered), {})[proof.part] = proof
        pieces = [piece for path in foreign for piece in self._pieces[path].get(shard, ())]
        if not pieces:
            return found
        # If one file of a range is gone, another program may have merged it with other files. The proofs (numbers of rows) of the
        # remaining files then say nothing, so their rows are counted, as the rows of files that have no proof.
        is_whole = {name for name, parts in there.items() if len(parts) == next(iter(parts.values())).parts}
        for name, parts in there.items():
            for proof in () if name in is_whole else parts.values():
                self._scan(folder, by_id[proof.file])
                pieces += self._pieces[by_id[proof.file]].get(shard, ())
        expected = {name: 0 for name in names if RangeProof.parsed(name) is None}
        for proof in proofs:
            if (name := str(proof.covered)) not in is_whole:
                expected[name] = expected.get(name, 0) + proof.rows
        for each in joined_pieces(pieces, expected, self._order_of):
            if not each.is_proven and not self._properties.value(ARCHIVE_UNPROVEN):
                raise self._is_unproven(shard, each, expected)
            found[f"{shard}/{each.name}.parquet"] = each.pieces
        return found

    def _is_unproven(self, shard: str, found: FileOfPieces, expected: Mapping[str, int]) -> ConfigurationError:
        rows = counted(sum(piece.rows for piece in found.pieces), "row")
        promised = f"the ranges of the archive promise {sum(expected.values())}" if expected else "no range is known"
        reason = (
            f"{found.pieces[0].path} in {self.place} was written without flink.sink.archive, or another program has rewritten it. It and "
            f"the files next to it have {rows} of {shard}, and {promised}, so records may be missing"
        )
        return ConfigurationError(ARCHIVE_UNPROVEN.key, "false", "true to read it nevertheless", reason=reason)

    def _scan(self, folder: TableFolder, path: str) -> None:
        """Find out which rows of which shards a file has that another program wrote. Only four of its columns are read."""
        if path in self._pieces:
            return
        file = pq.ParquetFile(folder.source(path, whole=False))
        if missing := [name for name in _KEYS if name not in file.schema_arrow.names]:
            raise StateError(
                f"{path} of {self.place} cannot be read as an archive: another program wrote it, without the column {missing[0]!r}"
            )
        by_shard: dict[str, list[RowPiece]] = {}
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=list(_KEYS), use_threads=False)
            table = pa.table({name: table[name].cast(kind) for name, kind in _KEYS.items()})
            keys = pc.binary_join_element_wise(table["stream"], table["shardId"], "/")
            for key in filter(None, keys.unique().to_pylist()):
                rows = table.filter(pc.equal(keys, key))
                numbers, parts = rows["sequenceNumber"].to_pylist(), rows["subSequenceNumber"].to_pylist()
                ends = (inf if part == WHOLE_RECORD else part for part in parts)
                places = list(zip(map(self._order_of, numbers), ends, strict=True))
                at = [places.index(place) for place in (min(places), max(places))]
                first, last = ((places[i], position_text(SequenceNumber(numbers[i], parts[i]))) for i in at)
                by_shard.setdefault(key, []).append(RowPiece(path, group, len(places), first, last))
        self._pieces[path] = by_shard


def joined_pieces(pieces: Iterable[RowPiece], expected: Mapping[str, int], order_of: OrderOf) -> list[FileOfPieces]:
    """Group the pieces (`RowPiece`) of a shard whose sequence numbers overlap. Return the groups in the order of their sequence numbers.

    A group is proven (no row of it is missing) if it has as many rows as its ranges should have. Ranges before the first piece do not
    count, because their rows were deleted from the table.

    - `expected`: how many rows each range should have, by `str(range)`; only ranges whose files another program has rewritten.
    """
    waiting = sorted(pieces, key=lambda piece: piece.first)
    known = [
        each for each in ranges_of(((name, name) for name in expected), order_of) if each.through >= waiting[0].first[0]
    ]
    found: list[FileOfPieces] = []
    for ranges in _without_gaps(known):
        after, through = ranges[0].after, ranges[-1].through
        inside = [piece for piece in waiting if (after is None or piece.first[0] > after) and piece.last[0] <= through]
        if not inside or sum(piece.rows for piece in inside) != sum(expected[each.paths[0]] for each in ranges):
            continue
        taken = set(inside)
        waiting = [piece for piece in waiting if piece not in taken]
        begin, groups = ranges[0].after_text, _overlapping(inside)
        ends = [*(max(piece.last for piece in group)[1] for group in groups[:-1]), position_text(ranges[-1].end)]
        for group, end in zip(groups, ends, strict=True):
            found.append(FileOfPieces(f"{begin}_{end}", group, True))
            begin = end
    for group in _overlapping(waiting):
        first, (last, text) = min(piece.first for piece in group)[1], max(piece.last for piece in group)
        # Between the last row and the next range there may be records without a row: the rest of an aggregate, or records that could
        # not be written.
        ends = [
            position_text(each.end)
            for each in known
            if (each.after is None or each.after < last) and last <= each.through
        ]
        found.append(FileOfPieces(f"{first}-{(*ends, text)[0]}", group, False))
    return found


def _without_gaps(ranges: Sequence[RangeFile]) -> list[list[RangeFile]]:
    chains: list[list[RangeFile]] = []
    for each in ranges:
        if not chains or each.after != chains[-1][-1].through:
            chains.append([])
        chains[-1].append(each)
    return chains


def _overlapping(pieces: Sequence[RowPiece]) -> list[list[RowPiece]]:
    groups: list[list[RowPiece]] = []
    last = None
    for piece in pieces:
        if last is None or piece.first > last:
            groups.append([])
        groups[-1].append(piece)
        last = piece.last if last is None else max(last, piece.last)
    return groups
