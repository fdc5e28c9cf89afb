"""Describes the files that a table sink has staged, in the form in which an entry names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from recordpublisher.fetcher.committing_sink import Staged
from recordpublisher.publishers.errors import StateError

from .folder import DATA, STAGED

Life = Annotated[str, msgspec.Meta(pattern=r"^(?!\.)[A-Za-z0-9_.-]{1,200}$")]
"""The name of one run of a worker. It is checked because it becomes a part of a path, and the entry may be one of another program."""
_Folder = Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!(.*/)?\.\.(/|$))")]
"""A path inside the folder of the stage."""


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


class StagedDataFiles(msgspec.Struct, frozen=True):
    """The files of one stage.

    - `life`: the name of the run of a worker that wrote them.
    - `positions`: how far each shard was read, for people to read.
    - `columns`: the types of the table's columns that the rows need, with the names that the table format has for types.
    """

    life: Life
    stage: int
    files: tuple[DataFile, ...]
    positions: Mapping[str, str]
    columns: Mapping[str, str] = {}

    @property
    def mark(self) -> str:
        """The path of the mark, which exists until the files are published."""
        return mark_of(self.life, self.stage)

    def name(self, file: DataFile) -> str:
        """Return the path of a file, relative to the table."""
        return f"{folder_of(self.life, self.stage)}/{file.folder}{file.number}.parquet"


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
