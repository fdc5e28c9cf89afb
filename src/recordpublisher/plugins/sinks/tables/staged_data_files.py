"""Describes the files that a table sink has staged, in the form in which an entry names them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from recordpublisher.fetcher.committing_sink import Staged
from recordpublisher.publishers.errors import StateError

from ..archived_shards import RANGES, Range, ShardDocument
from .folder import DATA, STAGED

Life = Annotated[str, msgspec.Meta(pattern=r"^(?!\.)[A-Za-z0-9_.-]{1,200}$")]
"""The name of one run of a worker. It is checked because it becomes a part of a path, and the entry may be one of another program."""
_Folder = Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!(.*/)?\.\.(/|$))")]
"""A path inside the folder of the stage."""

_PlaceText = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9.-]{1,110}$")]
_PROOF = re.compile(r"([A-Za-z0-9.-]+)_([A-Za-z0-9.-]+?)\.(\d+)of(\d+)\.([0-9a-f]{24})\.(\d+)")
_DATA_PATH = re.compile(rf"(?:^|/){DATA}/([A-Za-z0-9_.-]+)/(\d+)/(?:.*/)?(\d+)\.parquet$")


class DataFile(msgspec.Struct, frozen=True):
    """One Parquet file: its number in the stage, its size in bytes, its number of rows, the values of its partition, and Delta's
    statistics.

    `folder`: the path of the file's partition folders, with a slash at the end.
    """

    number: int
    size: int
    rows: int
    partition: Mapping[str, str | None] = {}
    stats: str | None = None
    folder: _Folder = ""


class CoveredFiles(msgspec.Struct):
    """The range of a shard in which some files of a stage are complete together, for an archive.

    - `shard`: the `Shard.key`. `after`, `through`: see `Range`.
    - `files`: the numbers of the files; none if no record of the range could be written.
    """

    shard: Annotated[str, msgspec.Meta(pattern=r"^(?!\.)[A-Za-z0-9_.-]{1,128}/(?!\.)[A-Za-z0-9_.-]{1,128}$")]
    after: _PlaceText
    through: _PlaceText
    files: list[int] = []


class RangeProof(msgspec.Struct, frozen=True):
    """Says that a file of a table has `rows` rows of one shard, and that the `parts` files of a range together are complete in it.

    It is stored as the name of an empty file. A file of a table is begun before the end of its range is known, so its own name cannot say
    this. And a program that joins files of the table removes their names, while the number of rows still shows that none is missing.
    """

    covered: Range
    part: int
    parts: int
    file: str
    rows: int

    def __str__(self) -> str:
        """Return the proof as it stands in the name of a file."""
        return f"{self.covered}.{self.part}of{self.parts}.{self.file}.{self.rows}"

    @classmethod
    def parsed(cls, name: str) -> RangeProof | None:
        """Return the proof that the name of a file says, or None if it is not one."""
        if (found := _PROOF.fullmatch(name)) is None:
            return None
        after, through, part, parts, file, rows = found.groups()
        return cls(Range(after, through), int(part), int(parts), file, int(rows))


class StagedDataFiles(msgspec.Struct, frozen=True, omit_defaults=True):
    """The files of one stage.

    - `life`: the name of the run of a worker that wrote them.
    - `positions`: how far each shard was read, for people to read.
    - `columns`: the types of the table's columns that the rows need, with the names that the table format has for types.
    - `ranges`: the ranges of an archive in which the files are complete.
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
    def mark(self) -> str:
        """The path of the mark, which exists until the files are published."""
        return mark_of(self.life, self.stage)

    def name(self, file: DataFile) -> str:
        """Return the path of a file, relative to the table."""
        return f"{folder_of(self.life, self.stage)}/{file.folder}{file.number}.parquet"

    def proofs(self) -> list[str]:
        """Return the paths of the empty files that say in which ranges the files are complete. They must be there before the files."""
        rows = {file.number: file.rows for file in self.files}
        return [
            f"{RANGES}/{each.shard}/"
            + str(RangeProof(Range(each.after, each.through), part, len(each.files), self._id(number), rows[number]))
            for each in self.ranges
            for part, number in enumerate(each.files, 1)
        ]

    def empty_ranges(self) -> list[str]:
        """Return the paths of the empty files for ranges without records."""
        return [f"{RANGES}/{each.shard}/{Range(each.after, each.through)}" for each in self.ranges if not each.files]

    def _id(self, number: int) -> str:
        return _id_of(self.life, str(self.stage), str(number))


def file_id(path: str) -> str | None:
    """Return the id that a `RangeProof` has of a table's file, from its path. None if no sink of ours can have written the file."""
    found = _DATA_PATH.search(path)
    return None if found is None else _id_of(*found.groups())


def _id_of(*names: str) -> str:
    return hashlib.sha256("/".join(names).encode()).hexdigest()[:24]


def mark_of(life: str, stage: int | str) -> str:
    """Return the path of the mark of a stage."""
    return f"{STAGED}/{life}/{stage}"


def folder_of(life: str, stage: int | str) -> str:
    """Return the path of the folder with the files of a stage."""
    return f"{DATA}/{life}/{stage}"


def staged_data_files(staged: Staged) -> StagedDataFiles:
    """Return the files that were staged. Raises: StateError if the entry names something else."""
    try:
        return msgspec.convert(staged.content, StagedDataFiles)
    except msgspec.ValidationError as error:
        raise StateError(
            f"commit {staged.number.n} of {staged.number.writer} names no files of a table: {error}"
        ) from error
