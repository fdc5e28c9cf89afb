"""What a table sink has staged, as an entry names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from recordpublisher.fetcher.committing_sink import Staged
from recordpublisher.publishers.errors import StateError

from .folder import DATA, STAGED

Life = Annotated[str, msgspec.Meta(pattern=r"^(?!\.)[A-Za-z0-9_.-]{1,200}$")]
"""It becomes a path: an entry may be somebody else's."""
_Folder = Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!(.*/)?\.\.(/|$))")]
"""Within the folder of the stage."""


class DataFile(msgspec.Struct, frozen=True):
    """One Parquet file: its number in the stage, its size in bytes, its rows, the values of its partition, and Delta's statistics.

    `folder`: the folders by partition in which it is, with a slash at the end.
    """

    number: int
    size: int
    rows: int
    partition: Mapping[str, str | None] = {}
    stats: str | None = None
    folder: _Folder = ""


class StagedDataFiles(msgspec.Struct, frozen=True):
    """The files of one stage of a life. `positions`: how far each shard was read, for people. `columns`: the types of the columns of the
    table that the rows need, as the format names them."""

    life: Life
    stage: int
    files: tuple[DataFile, ...]
    positions: Mapping[str, str]
    columns: Mapping[str, str] = {}

    @property
    def mark(self) -> str:
        """The mark that is there until the files are published."""
        return mark_of(self.life, self.stage)

    def name(self, file: DataFile) -> str:
        """Where a file is, relative to the table."""
        return f"{folder_of(self.life, self.stage)}/{file.folder}{file.number}.parquet"


def mark_of(life: str, stage: int | str) -> str:
    """The mark of a stage."""
    return f"{STAGED}/{life}/{stage}"


def folder_of(life: str, stage: int | str) -> str:
    """The folder with the files of a stage."""
    return f"{DATA}/{life}/{stage}"


def staged_data_files(staged: Staged) -> StagedDataFiles:
    """What was staged. Raises: StateError for something else."""
    try:
        return msgspec.convert(staged.content, StagedDataFiles)
    except msgspec.ValidationError as error:
        raise StateError(
            f"commit {staged.number.n} of {staged.number.writer} names no files of a table: {error}"
        ) from error
