"""Decodes archived files, Parquet and JSON lines, into the columns of records, in the order of their sequence numbers."""

from __future__ import annotations

import asyncio
import base64
import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from itertools import chain, islice
from math import inf
from operator import itemgetter, lt
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from recordpublisher.install_commands import install_command
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import WHOLE_RECORD, PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.sink_properties import ARCHIVE, PARQUET_COLUMNS
from recordpublisher.publishers.records import RecordColumns

from ..sinks.archived_shards import AT, BEGIN, COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

InThread = Callable[..., Awaitable[Any]]
"""Calls a function in a thread, as `asyncio.to_thread` does."""
_PIECE_BYTES = 4 * 2**20
"""How many bytes of JSON lines are decoded together."""
_RECORD_BYTES = 250
"""Memory of a decoded record in addition to its data: the objects of its columns."""


class ArchivedRows(Protocol):
    """The rows of one range, in groups."""

    groups: int

    async def rows(self, group: int) -> RecordColumns:
        """Decode a group. Raises: StateError if it cannot be read, or has no valid rows."""

    def close(self) -> None:
        """Close the file."""


class DecodeBuffer:
    """Owns the list of decoded groups of rows in memory. If they need more than `limit` bytes, those unused for longest are dropped.

    A group that was dropped is decoded again when it is needed. So shards that wait for others, because their watermark is too
    far ahead, never keep the memory that the shard with the lowest watermark needs.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: dict[DecodedRows, int] = {}
        self.bytes = 0

    def add(self, rows: DecodedRows) -> None:
        """Keep rows that were just decoded, and drop others if there are too many."""
        self._held[rows] = rows.held_bytes
        self.bytes += rows.held_bytes
        while self.bytes > self.limit and len(self._held) > 1:
            self.drop(next(iter(self._held)))

    def use(self, rows: DecodedRows) -> None:
        """Remember that the rows are used now."""
        if rows in self._held:
            self._held[rows] = self._held.pop(rows)

    def drop(self, rows: DecodedRows) -> None:
        """Drop rows that are not needed, or for which there is no room."""
        self.bytes -= self._held.pop(rows, 0)
        rows.drop()


class DecodedRows:
    """A group of rows, which may be dropped. `columns` is None after that."""

    def __init__(self, columns: RecordColumns) -> None:
        self.columns: RecordColumns | None = columns
        self.payload_bytes = sum(map(len, columns.data))
        self.held_bytes = self.payload_bytes + _RECORD_BYTES * len(columns)

    def drop(self) -> None:
        """Forget the rows."""
        self.columns = None


def first_behind(rows: RecordColumns, place: Place | None, order_of: OrderOf) -> int:
    """Return the index of the first row after a place."""
    if place is None:
        return 0
    numbers, parts = rows.sequence_numbers, rows.sub_sequence_numbers

    def key(index: int) -> Place:
        part = parts[index]
        return order_of(numbers[index]), inf if part == WHOLE_RECORD else part

    return bisect_right(range(len(numbers)), place, key=key)


def in_order(rows: RecordColumns, order_of: OrderOf) -> RecordColumns:
    """Return the rows in the order of their sequence numbers, each once. Sinks write them in it unless `flink.sink.parquet.sort` is set."""
    numbers, parts = rows.sequence_numbers, rows.sub_sequence_numbers
    # Texts of decimal numbers of one length sort as the numbers.
    is_text_enough = order_of is int and len(set(map(len, numbers))) <= 1
    keys: Sequence[Any] = numbers if is_text_enough else list(map(order_of, numbers))
    if all(map(lt, keys, islice(keys, 1, None))):
        return rows
    pairs = list(zip(keys, parts, strict=True))
    if all(map(lt, pairs, islice(pairs, 1, None))):
        return rows
    by_place = {pair: index for index, pair in enumerate(pairs)}
    picked = itemgetter(*(by_place[pair] for pair in sorted(by_place)), 0)
    names = (
        "data",
        "sequence_numbers",
        "arrival_millis",
        "partition_keys",
        "explicit_hash_keys",
        "sub_sequence_numbers",
    )
    return RecordColumns(**{name: picked(getattr(rows, name))[:-1] for name in names})


def joined(parts: Sequence[RecordColumns]) -> RecordColumns:
    """Return several groups of rows as one."""
    if len(parts) == 1:
        return parts[0]
    names = (
        "data",
        "sequence_numbers",
        "arrival_millis",
        "partition_keys",
        "explicit_hash_keys",
        "sub_sequence_numbers",
    )
    return RecordColumns(**{name: list(chain.from_iterable(getattr(part, name) for part in parts)) for name in names})


class OrderedFile:
    """The groups of one file, each sorted by sequence number. Raises StateError if a group begins before the end of the one before."""

    def __init__(
        self, file: ArchivedRows, name: str, order_of: OrderOf, in_thread: InThread = asyncio.to_thread
    ) -> None:
        self.groups = file.groups
        self._file, self._name, self._order_of, self._in_thread = file, name, order_of, in_thread
        self._ends: dict[int, Place] = {}

    async def rows(self, group: int) -> RecordColumns:
        """Decode a group."""
        rows: RecordColumns = await self._in_thread(in_order, await self._file.rows(group), self._order_of)
        if len(rows):
            begin, self._ends[group] = self._place(rows, 0), self._place(rows, -1)
            before = self._ends.get(group - 1)
            if before is not None and begin <= before:
                raise StateError(
                    f"{self._name} cannot be read: the rows of its row groups {group - 1} and {group} overlap, so another program has "
                    "sorted them. Rewrite the file in the order of sequenceNumber"
                )
        return rows

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _place(self, rows: RecordColumns, index: int) -> Place:
        return self._order_of(rows.sequence_numbers[index]), rows.sub_sequence_numbers[index]


class MergedFiles:
    """The files of one range in several partitions, as one sorted group."""

    groups = 1

    def __init__(
        self, files: Sequence[ArchivedRows], order_of: OrderOf, in_thread: InThread = asyncio.to_thread
    ) -> None:
        self._files, self._order_of, self._in_thread = files, order_of, in_thread

    async def rows(self, group: int) -> RecordColumns:
        """Decode all files, and sort their rows."""
        parts = [await file.rows(index) for file in self._files for index in range(file.groups)]
        rows: RecordColumns = await self._in_thread(lambda: in_order(joined(parts), self._order_of))
        return rows

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


class NoRows:
    """A range of which no record could be written."""

    groups = 0

    async def rows(self, group: int) -> RecordColumns:
        """Not called, because there is no group."""
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing."""


class ParquetRows:
    """A Parquet file.

    - `source`: its path, its content, or an open file.
    - `part`: only this row group is read, and of it the rows of the shard with this `Shard.key`.
    """

    def __init__(self, source: Any, name: str, in_thread: InThread, part: tuple[int, str] | None = None) -> None:
        self._name, self._in_thread, self._part = name, in_thread, part
        self._file: pq.ParquetFile = _opened(source, name)
        self.groups: int = self._file.num_row_groups if part is None else 1
        missing = [column for column in COLUMNS if column not in self._file.schema_arrow.names]
        if missing:
            raise _lacks(name, missing[0])

    async def rows(self, group: int) -> RecordColumns:
        """Decode a row group."""
        rows: RecordColumns = await self._in_thread(self._decode, group)
        return rows

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _decode(self, group: int) -> RecordColumns:
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            names = COLUMNS if self._part is None else ("stream", "shardId", *COLUMNS)
            group, shard = self._part or (group, "")
            table = self._file.read_row_group(group, columns=list(names), use_threads=False)
            if self._part is not None:
                stream, shard_id = (table[name].cast(pa.string()) for name in names[:2])
                own = pc.equal(pc.binary_join_element_wise(stream, shard_id, "/"), shard)
                table = pa.table({name: _plain(table[name]) for name in COLUMNS}).filter(own)
            instants = table["approximateArrivalTimestamp"]
            millis = instants.cast(pa.timestamp("ms", instants.type.tz), safe=False).cast(pa.int64())
            return RecordColumns(
                data=_objects(table["data"].cast(pa.binary())),
                sequence_numbers=_objects(table["sequenceNumber"].cast(pa.string())),
                arrival_millis=millis.to_pylist(),
                partition_keys=_objects(table["partitionKey"].cast(pa.string())),
                explicit_hash_keys=_objects(table["explicitHashKey"].cast(pa.string())),
                sub_sequence_numbers=table["subSequenceNumber"].cast(pa.int64()).to_pylist(),
            )
        except (pa.ArrowException, OSError, ValueError) as error:
            raise StateError(f"{self._name} cannot be read: {error}") from error


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return views of texts or bytes as texts or bytes, because pyarrow cannot filter views. Other programs may write them."""
    import pyarrow as pa

    kind = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(column.type)
    return column if kind is None else column.cast(kind)


def _objects(column: pa.ChunkedArray) -> list[Any]:
    if column.null_count == len(column):
        return [None] * len(column)
    # This is as fast as NumPy with pyarrow 26, and no extra of ours installs NumPy.
    objects: list[Any] = column.to_pylist()
    return objects


def _opened(source: Any, name: str) -> pq.ParquetFile:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(
            f"an archive of Parquet files needs the extra 'parquet': {install_command('parquet')}"
        ) from error
    try:
        return pq.ParquetFile(pa.BufferReader(source) if isinstance(source, bytes) else source)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise StateError(f"{name} cannot be read: {error}") from error


def _lacks(name: str, column: str) -> StateError:
    reason = (
        f": written with {PARQUET_COLUMNS.key}=FIELDS; an archive needs {ARCHIVE.key}=true" if column == "data" else ""
    )
    return StateError(f"{name} has no column {column!r}{reason}")


class _Line(msgspec.Struct, gc=False, rename="camel"):
    sequence_number: str
    sub_sequence_number: int
    partition_key: str | None
    approximate_arrival_timestamp: datetime
    data: str
    explicit_hash_key: str | None = None
    base64: bool = False


class JsonRows:
    """A file of JSON lines."""

    def __init__(self, content: bytes, name: str, in_thread: InThread) -> None:
        self._name, self._in_thread = name, in_thread
        self._pieces = _pieces(content)
        self.groups = len(self._pieces)
        self._decoder = msgspec.json.Decoder(_Line)

    async def rows(self, group: int) -> RecordColumns:
        """Decode some lines."""
        rows: RecordColumns = await self._in_thread(self._decode, group)
        return rows

    def close(self) -> None:
        """Forget the content."""
        self._pieces = []

    def _decode(self, group: int) -> RecordColumns:
        try:
            lines = self._decoder.decode_lines(self._pieces[group])
            data = [base64.b64decode(line.data) if line.base64 else line.data.encode() for line in lines]
        except msgspec.ValidationError as error:
            if "required field `data`" in str(error):
                raise _lacks(self._name, "data") from error
            raise StateError(f"{self._name} cannot be read: {error}") from error
        except ValueError as error:
            raise StateError(f"{self._name} cannot be read: {error}") from error
        return RecordColumns(
            data=data,
            sequence_numbers=[line.sequence_number for line in lines],
            arrival_millis=[round(line.approximate_arrival_timestamp.timestamp() * 1000) for line in lines],
            partition_keys=[line.partition_key for line in lines],
            explicit_hash_keys=[line.explicit_hash_key for line in lines],
            sub_sequence_numbers=[line.sub_sequence_number for line in lines],
        )


def _pieces(content: bytes) -> list[memoryview]:
    """Return the lines of a file in pieces that are decoded together."""
    pieces, start, view = [], 0, memoryview(content)
    while start < len(content):
        stop = content.find(b"\n", start + _PIECE_BYTES) + 1 or len(content)
        pieces.append(view[start:stop])
        start = stop
    return pieces


# Decides what the reader of an archived shard does next, from the ranges of the shard's files (`next_step`).

Place = tuple[Any, float]
"""A position that can be compared: the order of a sequence number, and the last sub-record that is done, `inf` for the whole record."""
OrderOf = Callable[[str], Any]
_POSITION = r"[A-Za-z0-9.-]+?\.(?:-1|\d+)"
_RANGE = re.compile(
    rf"(?P<after>{BEGIN}|(?P<at>{AT}-)?(?P<first>{_POSITION}))_(?P<through>{_POSITION})"
    r"(?:\.(?P<part>\d+)of(?P<parts>\d+))?(?:\.[0-9a-f]{12})?"
)
_WITHOUT_RANGE = re.compile(rf"(?P<first>{_POSITION})-(?P<through>{_POSITION})(?:\.[0-9a-f]{{12}})?")


class Step(Enum):
    """The possible steps of a reader at its place.

    - READ: read the next file. LIVE: read the stream after the place. END: the shard is complete.
    - SKIP: start at the next file, because no record before it must be read.
    - LOST: the next records are in no file, and the stream does not have them.
    """

    READ = "read"
    LIVE = "live"
    END = "end"
    SKIP = "skip"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class RangeFile:
    """Files that together have every record of one shard after the position `after`, up to `through`.

    - `paths`: one file, or one for each partition; none if no record of the range could be written.
    - `after`: None if the shard has no record before; `after_text` is its name.
    - `end`: `through` as a position.
    - `is_proven`: False for a file whose name has no range. Then records before it may be missing.
    """

    paths: tuple[str, ...]
    after: Place | None
    through: Place
    end: SequenceNumber
    after_text: str
    is_proven: bool = True

    @property
    def is_continuation(self) -> bool:
        """Whether the range begins where an earlier one ended. Before the first files of a shard no file has the earlier records."""
        return self.after is not None and not self.after_text.startswith(f"{AT}-")

    def follows(self, place: Place | None) -> bool:
        """Return whether no record between the place and the first one of these files is missing."""
        return self.after is None or not self.is_proven or (place is not None and self.after <= place)


@dataclass(frozen=True, slots=True)
class Seam:
    """The facts at the place where the files of a shard end, or where a range is missing.

    - `file`: the next file that reaches past the place.
    - `is_complete`: whether the shard's end is at or before the place.
    - `is_owed`: whether records after the place must not be left out; False at the first start of a shard.
    - `is_live`: whether the stream lists the shard, and is read.
    - `is_bounded`: whether the read ends with the archive.
    - `stream_has_following`: whether the stream still has the records between the place and `file`.
    """

    place: Place | None
    file: RangeFile | None
    is_complete: bool
    is_owed: bool
    is_live: bool
    is_bounded: bool
    stream_has_following: bool = False


def next_step(at: Seam) -> Step:
    """Return the next step of the reader of a shard."""
    if at.file is not None and at.file.follows(at.place):
        return Step.READ
    if at.file is None:
        if at.is_complete or at.is_bounded:
            return Step.END
        return Step.LIVE if at.is_live else Step.LOST
    if at.is_live and at.stream_has_following:
        return Step.LIVE
    return Step.LOST if at.is_owed else Step.SKIP


def place_of(position: SequenceNumber, order_of: OrderOf) -> Place:
    """Return the place of a position."""
    part = position.sub_sequence
    return order_of(position.sequence), inf if part == WHOLE_RECORD else part


def starting_place(start: StartingPosition, order_of: OrderOf) -> Place | None:
    """Return the place after which a read starts, or None if it does not start at a sequence number."""
    if start.skip_through is not None:
        return place_of(start.skip_through, order_of)
    if start.sequence_number is None:
        return None
    position = SequenceNumber(start.sequence_number)
    is_included = start.type is PositionType.AT_SEQUENCE_NUMBER
    return place_before(position, order_of) if is_included else place_of(position, order_of)


def position_from(text: str) -> SequenceNumber:
    """Return the position that `position_text` has written."""
    number, _, part = text.rpartition(".")
    return SequenceNumber(number, int(part))


def place_before(first: SequenceNumber, order_of: OrderOf) -> Place:
    """Return the place just before a record."""
    order, part = order_of(first.sequence), first.sub_sequence
    return order, -1.0 if part == WHOLE_RECORD else part - 0.5


def is_complete(place: Place | None, through: str, order_of: OrderOf, is_owed: bool) -> bool:
    """Return whether the archived end of a shard is at or before the place.

    - `through`: BEGIN if the shard has no records; AT if the archiving job read none, because it started later.
    - `is_owed`: whether records in no file may be missing. Then the shard is complete only if its files reach the end.
    """
    if through == BEGIN:
        return True
    if through == AT or place is None:
        return not is_owed
    return place >= place_of(position_from(through), order_of)


def ranges_of(files: Iterable[tuple[str, str]], order_of: OrderOf) -> list[RangeFile]:
    """Return the ranges of a shard's files, in the order in which they are read.

    `files` are paths, each with the file's name without its suffix. A range in several partitions counts once all of its parts
    exist. If several files have the same range, each is complete.

    Ranges without records before the first file are left out if files between them and that file are missing. A person who deletes old
    files may leave them there, and the shard then begins with the first file that is left.
    """
    whole: dict[tuple[str, str], RangeFile] = {}
    parts: dict[tuple[str, str], dict[str, dict[str, list[str]]]] = {}
    for path, name in files:
        parsed = _RANGE.fullmatch(name)
        is_proven = parsed is not None
        parsed = parsed or _WITHOUT_RANGE.fullmatch(name)
        if parsed is None:
            continue
        of = parsed.groupdict()
        key = (of.get("after") or f"{AT}-{of['first']}", of["through"])
        if of.get("parts"):
            parts.setdefault(key, {}).setdefault(of["parts"], {}).setdefault(of["part"], []).append(path)
        elif is_proven or key not in whole:
            whole[key] = _range_file(key, (path,) if path else (), order_of, is_proven)
    for key, by_count in parts.items():
        for count, found in by_count.items():
            if len(found) == int(count) and key not in whole:
                whole[key] = _range_file(key, tuple(path for paths in found.values() for path in paths), order_of, True)
    first = (-inf,)
    return _from_first_file(
        sorted(whole.values(), key=lambda file: (first if file.after is None else (0, *file.after), file.through))
    )


def _from_first_file(ranges: list[RangeFile]) -> list[RangeFile]:
    begin, reached = 0, None
    for index, file in enumerate(ranges):
        if reached is not None and not file.follows(reached):
            begin = index
        reached = file.through if reached is None else max(reached, file.through)
        if file.paths:
            return ranges[begin:]
    return ranges


def _range_file(key: tuple[str, str], paths: tuple[str, ...], order_of: OrderOf, is_proven: bool) -> RangeFile:
    after, through = key
    end = position_from(through)
    found = RangeFile(paths, None, place_of(end, order_of), end, after, is_proven)
    if after == BEGIN:
        return found
    if not after.startswith(f"{AT}-"):
        return replace(found, after=place_of(position_from(after), order_of))
    return replace(found, after=place_before(position_from(after.removeprefix(f"{AT}-")), order_of))
