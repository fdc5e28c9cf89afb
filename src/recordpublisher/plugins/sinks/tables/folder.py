"""TableFolder: the files of a table, local or in object storage, through a file system of pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyarrow import fs

from recordpublisher.plugins.stores.durable_files import DurableFile

STAGED = "_recordpublisher/staged"
"""Here each stage that is not published has a mark. Table formats ignore folders that begin with `_`."""
DATA = "data"


class OutputFile(NamedTuple):
    """A file that is written; `close` makes it durable."""

    name: str
    target: Any
    close: Callable[[], None]


class TableFolder:
    """Owns nothing: a file system and the path of the table in it. Its methods block, and raise OSError."""

    def __init__(self, files: fs.FileSystem, path: str) -> None:
        self._files, self._path = files, path.rstrip("/")
        self._is_local = isinstance(files, fs.LocalFileSystem)

    def create(self, name: str) -> OutputFile:
        """Begin a file. Nothing is there, or only a part of it, before it is closed."""
        if not self._is_local:
            stream = self._files.open_output_stream(self._of(name))
            return OutputFile(name, stream, stream.close)
        file = DurableFile(Path(self._of(name)))
        return OutputFile(name, file, file.close)

    def mark(self, name: str) -> None:
        """Make an empty file."""
        self.create(name).close()

    def size(self, name: str) -> int | None:
        """The bytes of a file; None: there is none."""
        (found,) = self._files.get_file_info([self._of(name)])
        return found.size if found.type == fs.FileType.File else None

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if there is none."""
        found = self._files.get_file_info(fs.FileSelector(self._of(folder), allow_not_found=True))
        return [each.base_name for each in found]

    def total(self, folder: str) -> tuple[int, float]:
        """The bytes of all files in a folder, and when the newest was written (epoch seconds; 0: there is none)."""
        selected = fs.FileSelector(self._of(folder), allow_not_found=True, recursive=True)
        files = [each for each in self._files.get_file_info(selected) if each.type == fs.FileType.File]
        return sum(each.size for each in files), max((each.mtime.timestamp() for each in files), default=0.0)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files that may be there."""
        for name in names:
            with suppress(FileNotFoundError):
                self._files.delete_file(self._of(name))

    def delete_folder(self, folder: str) -> None:
        """Delete a folder that may be there, with its files."""
        with suppress(FileNotFoundError):
            self._files.delete_dir(self._of(folder))

    def _of(self, name: str) -> str:
        return f"{self._path}/{name}"
