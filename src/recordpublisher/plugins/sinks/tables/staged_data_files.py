"""Describes the files that a table sink has staged, in the form in which stored positions (an entry) name them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from recordpublisher.fetcher.sink import RejectedRecord, Staged
from recordpublisher.plugins.columns.file_columns import FileColumns
from recordpublisher.plugins.columns.parquet_encoder import ParquetEncoder, ParquetOptions
from recordpublisher.plugins.columns.partitions import Partition, Partitions
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.records import RecordBatch

from ..archived_shards import RANGES, FileRange, ShardDocument
from .table_folder import DATA, STAGED, OutputFile, TableFolder

MOST_OPEN = 32
"""Most files that are written at a time, because each has a buffer of a few MiB for its upload.

With more partitions, open files are ended.
"""
_MOST_FOLDER_BYTES = 250
"""Longest path of partition folders (bytes). The usual file systems refuse longer names, and a file's key in an object store is limited."""
DescribeFile = Callable[[Any], str | None]
"""Returns what a table format stores about a file, from the footer of the Parquet file."""


class StagedDataFiles(msgspec.Struct, frozen=True, omit_defaults=True):
    """The files that one call of `stage` has ended.

    - `life`: the name of the run of a worker that wrote them.
    - `positions`: how far each shard was read, for people to read.
    - `columns`: the types of the table's columns that the rows need, with the names that the table format has for types.
    - `ranges`: the ranges that are complete in the files; empty unless the sink writes an archive.
    - `shards`: the documents of an archive's shards that the commit has to store.
    """

    life: Life
    stage: int
    files: tuple[DataFile, ...]
    positions: Mapping[str, str]
    columns: Mapping[str, str] = {}
    ranges: Sequence[CoveredFiles] = ()
    shards: Sequence[ShardDocument] = ()

    @property
    def mark_path(self) -> str:
        """The path of the mark: an empty file that exists until the files are published."""
        return stage_mark_path(self.life, self.stage)

    def name(self, file: DataFile) -> str:
        """Return the path of a file, relative to the table."""
        return f"{stage_folder_path(self.life, self.stage)}/{file.folder}{file.number}.parquet"

    def proof_paths(self) -> list[str]:
        """Return the paths of the empty files that say which ranges are complete (see `RangeProof`).

        These empty files must exist before the data files are published.
        """
        rows = {file.number: file.rows for file in self.files}
        return [
            f"{RANGES}/{each.shard}/"
            + str(
                RangeProof(FileRange(each.after, each.through), part, len(each.files), self._id(number), rows[number])
            )
            for each in self.ranges
            for part, number in enumerate(each.files, 1)
        ]

    def empty_ranges(self) -> list[str]:
        """Return the paths of the empty files for ranges without records."""
        return [
            f"{RANGES}/{each.shard}/{FileRange(each.after, each.through)}" for each in self.ranges if not each.files
        ]

    def _id(self, number: int) -> str:
        return _id_of(self.life, str(self.stage), str(number))


@dataclass(slots=True)
class _OpenFile:
    """The file of one partition. `output` is opened with the first row group."""

    partition: Mapping[str, str | None]
    folder: str
    shard: str | None
    encoder: ParquetEncoder
    output: OutputFile | None = None

    def abandon(self) -> None:
        """Close the file without its waiting rows. The file never becomes a part of the table."""
        self.encoder.abandon()
        if self.output is not None:
            self.output.close()


class OpenFiles:
    """Writes the files of the next `stage`. All methods block, must be called from one thread, and raise OSError if a write fails.

    A row group is written when it is full, or when the waiting rows of all files need more than `limit_bytes`.
    """

    def __init__(
        self,
        open_folder: Callable[[], TableFolder],
        columns: FileColumns,
        partitions: Partitions,
        options: ParquetOptions,
        limit_bytes: int,
        describe: DescribeFile,
        *,
        without: Collection[str] = (),
    ) -> None:
        """Prepare to write. No file is open yet.

        - `open_folder`: returns the folder of the table.
        - `describe`: returns what the table format stores about a file, from the file's footer.
        - `without`: partition columns that files do not have, because readers take their values from the table's log or folder names.
        """
        self._open_folder, self._describe = open_folder, describe
        self._partitions, self._options = partitions, options
        self._limit = limit_bytes
        self._has_folders, self._without = bool(without), without
        self._open: dict[tuple[Any, ...], _OpenFile] = {}
        self.use(columns)
        self.begin("")

    def begin(self, life: str) -> None:
        """Begin a new run of the worker, with the name `life`, and abandon the open files. Their written parts stay in the folder."""
        for file in self._open.values():
            with suppress(OSError):
                file.abandon()
        self._life, self._stage = life, 0
        self.begin_stage()

    def begin_stage(self) -> None:
        """Forget the files that `take_staged` returned. Later files are of the next stage."""
        self._stage += 1
        self._folder: TableFolder | None = None
        self._open = {}
        self._ended: list[tuple[str | None, DataFile]] = []
        self._count = 0
        self.written_bytes = 0
        self._positions: dict[str, str] = {}
        self._ranges: list[CoveredFiles] = []
        self._newest: dict[str, CoveredFiles] = {}

    def use(self, columns: FileColumns) -> None:
        """Write these columns from now on. Files with the earlier columns are ended."""
        self.end_files()
        self._columns = columns
        self._names = [name for name in columns.schema.names if name not in self._without]
        self._schema = pa.schema([columns.schema.field(name) for name in self._names])

    def write(
        self, batches: Sequence[RecordBatch], shard: str | None, covered: FileRange | None = None
    ) -> list[RejectedRecord]:
        """Add records, and return those that do not fit the columns.

        - `shard`: the shard of all these records, if each shard has files of its own; else None.
        - `covered`: the range whose records these are, in an archive. `batches` may be empty, if none of its records can be written.
        """
        rejected: list[RejectedRecord] = []
        if shard is not None and covered is not None:
            self._cover(shard, covered)
        for rows in self._columns.rows(batches, rejected) if batches else ():
            for partition in self._partitions.split(rows):
                self._add(partition, shard)
        self._positions |= {batch.shard.key: str(batch.read_position) for batch in batches}
        return rejected

    def drop(self, shards: Collection[str]) -> None:
        """Leave the files of these shards out of the next stage. Delete the files that are still open."""
        for key, file in list(self._open.items()):
            if file.shard in shards:
                del self._open[key]
                file.abandon()
                if file.output is not None and self._folder is not None:
                    self._folder.delete([file.output.name])
        self._ended = [(shard, file) for shard, file in self._ended if shard not in shards]
        self._positions = {shard: last for shard, last in self._positions.items() if shard not in shards}
        self._ranges = [each for each in self._ranges if each.shard not in shards]
        self._newest = {shard: each for shard, each in self._newest.items() if shard not in shards}

    def end_files(self) -> None:
        """End all open files, which makes them durable."""
        while self._open:  # Ending a file may open it, and so end another file first.
            self._end(next(iter(self._open)))

    @property
    def has_rows(self) -> bool:
        """Whether the next stage has rows."""
        return bool(self._open or self._ended)

    def take_staged(self, columns: Mapping[str, str]) -> StagedDataFiles:
        """Return the files that `end_files` has ended, perhaps none. They stay here until `begin_stage` is called.

        `columns`: the types that the columns have in the table.
        """
        if self._open:
            raise AssertionError("files are open")
        files = tuple(file for _, file in self._ended)
        return StagedDataFiles(self._life, self._stage, files, self._positions, columns if files else {}, self._ranges)

    def _cover(self, shard: str, covered: FileRange) -> None:
        """Extend the newest range of a shard. If there is a gap before `covered`, end the shard's files: a file has one range."""
        if (newest := self._newest.get(shard)) is not None and newest.through == covered.after:
            newest.through = covered.through
            return
        for key in [key for key, file in self._open.items() if file.shard == shard]:
            self._end(key)
        self._newest[shard] = CoveredFiles(shard, covered.after, covered.through)
        self._ranges.append(self._newest[shard])

    def _add(self, partition: Partition, shard: str | None) -> None:
        key = (shard, *partition.values.values())
        if key not in self._open:
            self._open[key] = self._begun(partition, shard)
        rows = partition.rows.select(self._names)
        self._open[key].encoder.write(rows)
        self.written_bytes += rows.nbytes
        while sum(file.encoder.held_bytes for file in self._open.values()) >= self._limit:
            max(self._open.values(), key=lambda file: file.encoder.held_bytes).encoder.write_row_group()

    def _begun(self, partition: Partition, shard: str | None) -> _OpenFile:
        def open_target() -> Any:
            begun = [key for key, other in self._open.items() if other.encoder.is_opened]
            if len(begun) >= MOST_OPEN:
                self._end(begun[0])
            file.output = self._create(file.folder)
            return file.output.target

        folder = f"{partition.folder}/" if self._has_folders else ""
        if len(folder.encode()) > _MOST_FOLDER_BYTES:
            folder = ""
        file = _OpenFile(partition.texts, folder, shard, ParquetEncoder(open_target, self._schema, self._options))
        return file

    def _create(self, folders: str) -> OutputFile:
        if self._folder is None:
            folder = self._open_folder()
            if self._stage == 1 and folder.names(f"{DATA}/{self._life}"):
                raise FileExistsError(
                    f"{DATA}/{self._life} has files of another process that writes under the same name; restart this "
                    "process, which then gets a new name"
                )
            folder.write_empty(stage_mark_path(self._life, self._stage))
            self._folder = folder
        self._count += 1
        return self._folder.create(f"{stage_folder_path(self._life, self._stage)}/{folders}{self._count}.parquet")

    def _end(self, key: tuple[Any, ...]) -> None:
        file = self._open[key]
        footer = file.encoder.close()
        output = file.output
        assert output is not None
        size = output.target.tell()
        output.close()
        del self._open[key]
        number = int(output.name.rpartition("/")[2].removesuffix(".parquet"))
        staged = DataFile(number, size, footer.num_rows, file.partition, self._describe(footer), file.folder)
        self._ended.append((file.shard, staged))
        if file.shard in self._newest:
            self._newest[file.shard].files.append(number)


Life = Annotated[str, msgspec.Meta(pattern=r"^(?!\.)[A-Za-z0-9_.-]{1,200}$")]
"""The name of one run of a worker. It is checked because it becomes a part of a path, and another program may have written it."""
_Folder = Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!(.*/)?\.\.(/|$))")]
"""A path inside the folder of the stage."""

_PlaceText = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9.-]{1,110}$")]
_PROOF = re.compile(r"([A-Za-z0-9.-]+)_([A-Za-z0-9.-]+?)\.(\d+)of(\d+)\.([0-9a-f]{24})\.(\d+)")
_DATA_PATH = re.compile(rf"(?:^|/){DATA}/([A-Za-z0-9_.-]+)/(\d+)/(?:.*/)?(\d+)\.parquet$")


class DataFile(msgspec.Struct, frozen=True):
    """One Parquet file of a stage.

    - `number`: the number of the file in the stage.
    - `folder`: the path of the file's partition folders, with a slash at the end.
    """

    number: int
    size: int
    rows: int
    partition: Mapping[str, str | None] = {}
    stats: str | None = None
    folder: _Folder = ""


class CoveredFiles(msgspec.Struct):
    """A range of a shard in an archive, and the files of a stage that together have all of its records.

    - `shard`: the `Shard.key`. `after`, `through`: see `FileRange`.
    - `files`: the numbers of the files; none if no record of the range could be written.
    """

    shard: Annotated[str, msgspec.Meta(pattern=r"^(?!\.)[A-Za-z0-9_.-]{1,128}/(?!\.)[A-Za-z0-9_.-]{1,128}$")]
    after: _PlaceText
    through: _PlaceText
    files: list[int] = []


class RangeProof(msgspec.Struct, frozen=True):
    """Says that a file of a table has `rows` rows of one shard, and that the `parts` files of a range together have all its records.

    A proof is stored as the name of an empty file, because a file of the table is begun and named before the end of its range is known.
    If another program joins files of the table under new names, the numbers of rows in the proofs still show whether a row is missing.
    """

    covered: FileRange
    part: int
    parts: int
    file: str
    rows: int

    def __str__(self) -> str:
        """Return the proof as text, in the form for names of files."""
        return f"{self.covered}.{self.part}of{self.parts}.{self.file}.{self.rows}"

    @classmethod
    def parsed(cls, name: str) -> RangeProof | None:
        """Return the proof in the name of a file, or None if the name has no proof."""
        if (found := _PROOF.fullmatch(name)) is None:
            return None
        after, through, part, parts, file, rows = found.groups()
        return cls(FileRange(after, through), int(part), int(parts), file, int(rows))


def file_id(path: str) -> str | None:
    """Return the id in a file's path, by which a `RangeProof` names it; None if no sink of this package can have written the file."""
    found = _DATA_PATH.search(path)
    return None if found is None else _id_of(*found.groups())


def _id_of(*names: str) -> str:
    return hashlib.sha256("/".join(names).encode()).hexdigest()[:24]


def stage_mark_path(life: str, stage: int | str) -> str:
    """Return the path of a stage's mark: an empty file that exists until the files of the stage are published.

    - `life`: the name of the run of a worker process.
    - `stage`: the number of the stage, unique within the run.
    """
    return f"{STAGED}/{life}/{stage}"


def stage_folder_path(life: str, stage: int | str) -> str:
    """Return the path of the folder with the files of a stage. The arguments are those of `stage_mark_path`."""
    return f"{DATA}/{life}/{stage}"


def staged_data_files(staged: Staged) -> StagedDataFiles:
    """Return the files that were staged. Raises: StateError if the stored content has another form."""
    try:
        return msgspec.convert(staged.content, StagedDataFiles)
    except msgspec.ValidationError as error:
        raise StateError(
            f"commit {staged.number.n} of {staged.number.writer} names no files of a table: {error}"
        ) from error
