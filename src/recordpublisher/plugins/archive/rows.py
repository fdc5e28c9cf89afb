"""Decodes archived files, Parquet and JSON lines, into the columns of records, in the order of their sequence numbers."""

from __future__ import annotations

import asyncio
import base64
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from itertools import chain, islice
from math import inf
from operator import itemgetter, lt
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from recordpublisher.install_commands import install_command
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import WHOLE_RECORD
from recordpublisher.publishers.properties.sink_properties import ARCHIVE, PARQUET_COLUMNS
from recordpublisher.publishers.records import RecordColumns

from ..sinks.archived_shards import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
from .next_step import OrderKey, OrderOf

InThread = Callable[..., Awaitable[Any]]
"""Calls a function in a thread, as `asyncio.to_thread` does."""
_PIECE_BYTES = 4 * 2**20
"""Bytes of JSON lines that are decoded together."""
_RECORD_BYTES = 250
"""Memory of a decoded record in addition to its data: the objects of its columns."""


class ArchivedRows(Protocol):
    """The rows of one range (all archived records of a shard between two positions). They are decoded in groups, such as row groups."""

    groups: int

    async def rows(self, group: int) -> RecordColumns:
        """Decode a group. Raises: StateError if it cannot be read, or has no valid rows."""

    def close(self) -> None:
        """Close the file."""


class DecodeBuffer:
    """Keeps decoded groups of rows in memory, up to `limit` bytes, and drops those that were unused for longest.

    A dropped group is decoded again when it is needed, so a shard that alignment holds back does not keep memory that a shard with a lower
    watermark needs.
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
        """Note that the rows are used now."""
        if rows in self._held:
            self._held[rows] = self._held.pop(rows)

    def drop(self, rows: DecodedRows) -> None:
        """Drop rows that are not needed, or for which there is no room."""
        self.bytes -= self._held.pop(rows, 0)
        rows.drop()


class DecodedRows:
    """A group of decoded rows. `columns` is None after `drop`."""

    def __init__(self, columns: RecordColumns) -> None:
        self.columns: RecordColumns | None = columns
        self.payload_bytes = sum(map(len, columns.data))
        self.held_bytes = self.payload_bytes + _RECORD_BYTES * len(columns)

    def drop(self) -> None:
        """Free the memory of the rows."""
        self.columns = None


def first_row_after(rows: RecordColumns, place: OrderKey | None, order_of: OrderOf) -> int:
    """Return the index of the first row after `place` (a position)."""
    if place is None:
        return 0
    numbers, parts = rows.sequence_numbers, rows.sub_sequence_numbers

    def key(index: int) -> OrderKey:
        part = parts[index]
        return order_of(numbers[index]), inf if part == WHOLE_RECORD else part

    return bisect_right(range(len(numbers)), place, key=key)


def rows_in_order(rows: RecordColumns, order_of: OrderOf) -> RecordColumns:
    """Return the rows in the order of their sequence numbers, each once.

    Files have this order already unless `flink.sink.parquet.sort` was set.
    """
    numbers, parts = rows.sequence_numbers, rows.sub_sequence_numbers
    # Decimal numbers with equally many digits have the same order as their texts, and comparing texts is faster.
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
    """The groups of one file, each sorted by sequence number.

    `rows` raises StateError if a group overlaps the one before it.
    """

    def __init__(
        self, file: ArchivedRows, name: str, order_of: OrderOf, in_thread: InThread = asyncio.to_thread
    ) -> None:
        self.groups = file.groups
        self._file, self._name, self._order_of, self._in_thread = file, name, order_of, in_thread
        self._ends: dict[int, OrderKey] = {}

    async def rows(self, group: int) -> RecordColumns:
        """Decode a group."""
        rows: RecordColumns = await self._in_thread(rows_in_order, await self._file.rows(group), self._order_of)
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

    def _place(self, rows: RecordColumns, index: int) -> OrderKey:
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
        rows: RecordColumns = await self._in_thread(lambda: rows_in_order(joined(parts), self._order_of))
        return rows

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


class NoRows:
    """A range without rows, because none of its records could be written."""

    groups = 0

    async def rows(self, group: int) -> RecordColumns:
        """Never called, because there is no group."""
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing."""


class ParquetRows:
    """The rows of a Parquet file, by row group.

    - `source`: its path, its content, or an open file.
    - `part`: a row group and a `Shard.key`. If given, only the rows of that shard in that row group are read.
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
    """Return a column of type string_view or binary_view as string or binary, because pyarrow cannot filter views."""
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
    """The rows of a file of JSON lines, in groups of whole lines."""

    def __init__(self, content: bytes, name: str, in_thread: InThread) -> None:
        self._name, self._in_thread = name, in_thread
        self._pieces = _pieces(content)
        self.groups = len(self._pieces)
        self._decoder = msgspec.json.Decoder(_Line)

    async def rows(self, group: int) -> RecordColumns:
        """Decode the lines of group number `group`."""
        rows: RecordColumns = await self._in_thread(self._decode, group)
        return rows

    def close(self) -> None:
        """Free the memory of the content."""
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
    """Split the content of a file into parts of whole lines. The reader decodes one part at a time."""
    pieces, start, view = [], 0, memoryview(content)
    while start < len(content):
        stop = content.find(b"\n", start + _PIECE_BYTES) + 1 or len(content)
        pieces.append(view[start:stop])
        start = stop
    return pieces
