"""StagedFiles: files that are written in a hidden folder, and renamed into place when a commit has named them (S6)."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from recordpublisher.plugins.stores.durable_files import make_folder, sync

HIDDEN = ".recordpublisher"
FileName = Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!(.*/)?\.\.(/|$)).+$")]
"""Relative to the sink's folder, and within it: an entry may be somebody else's."""
StagedFile = tuple[FileName, FileName]
"""Where a file is, and its name."""
Files = Mapping[str, Callable[[Path], None]]
"""A function that writes the file, by the file's name."""


class StagedFiles:
    """The files of a sink's folder. Owns nothing: `stage` returns what a commit must store. Its methods block."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def stage(self, folder: str, checkpoint: int, files: Files) -> list[StagedFile]:
        """Write files, and return where each one is and its name. Raises: OSError.

        The names of staged files are unique: the last commit still names those of its own.
        """
        staged = self._path / HIDDEN / folder
        make_folder(staged)
        written: list[StagedFile] = []
        for number, (name, write) in enumerate(files.items()):
            file = staged / f"{checkpoint}-{number}"
            write(file)
            sync(file)
            written.append((str(file.relative_to(self._path)), name))
        sync(staged)
        return written

    def finish(self, files: Iterable[StagedFile]) -> None:
        """Rename the files that are still staged; another process may do the same concurrently."""
        for staged, name in files:
            target = self._path / name
            make_folder(target.parent)
            try:
                (self._path / staged).replace(target)
            except FileNotFoundError:
                continue
            sync(target.parent)

    def drop(self, pattern: str, is_dropped: Callable[[str], bool] = lambda name: True) -> None:
        """Delete the staged files in the folders that match."""
        for folder in (self._path / HIDDEN).glob(pattern):
            if is_dropped(folder.name):
                shutil.rmtree(folder, ignore_errors=True)
