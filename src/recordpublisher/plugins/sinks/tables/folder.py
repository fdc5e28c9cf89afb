"""TableFolder: the files of a table, on the local disk or in object storage."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from recordpublisher.plugins.stores.durable_files import DurableFile
from recordpublisher.plugins.stores.obstore_client import words_of

STAGED = "_recordpublisher/staged"
"""Here each stage that is not published has a mark. Table formats ignore folders that begin with `_`."""
DATA = "data"
_PART_BYTES, _PARTS = 10 * 2**20, 2
"""Of an upload, and how many are sent at a time: so many files are open that this is their memory. A smaller file is one request."""


class OutputFile(NamedTuple):
    """A file that is written; `close` makes it durable."""

    name: str
    target: Any
    close: Callable[[], None]


class TableFolder:
    """The folder of a table on the local disk. Its methods block, and raise OSError. Names are relative to it."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def create(self, name: str) -> OutputFile:
        """Begin a file. Nothing is there, or only a part of it, before it is closed. Raises: FileExistsError for a local one."""
        file = DurableFile(self._path / name, is_new=True)
        return OutputFile(name, file, file.close)

    def mark(self, name: str) -> None:
        """Make an empty file."""
        self.create(name).close()

    def size(self, name: str) -> int | None:
        """Return the bytes of a file, or None if there is none."""
        file = self._path / name
        return file.stat().st_size if file.is_file() else None

    def read(self, name: str) -> bytes:
        """Return a small file."""
        return (self._path / name).read_bytes()

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; none if there is none."""
        with suppress(FileNotFoundError):
            return os.listdir(self._path / folder)
        return []

    def total(self, folder: str) -> tuple[int, float]:
        """Return the bytes of all files in a folder, and when the newest was written (epoch seconds; 0: there is none)."""
        found = [file.stat() for file in (self._path / folder).rglob("*") if file.is_file()]
        return sum(each.st_size for each in found), max((each.st_mtime for each in found), default=0.0)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files that may be there."""
        for name in names:
            (self._path / name).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder that may be there, with its files."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._path / folder)


class ObjectFolder(TableFolder):
    """The objects below a prefix, by obstore's client."""

    def __init__(self, client: Any, prefix: str = "") -> None:
        """`prefix`: below the client's own, with a slash at its end."""
        self._client, self._prefix = client, prefix

    def create(self, name: str) -> OutputFile:
        """Begin an object."""
        stream = ObjectWriter(self._client, self._prefix + name)
        return OutputFile(name, stream, stream.close)

    def size(self, name: str) -> int | None:
        """Ask for its head."""
        try:
            with as_os_errors():
                return int(self._client.head(self._prefix + name)["size"])
        except FileNotFoundError:
            return None

    def read(self, name: str) -> bytes:
        """Get it."""
        with as_os_errors():
            return bytes(self._client.get(self._prefix + name).bytes())

    def names(self, folder: str) -> list[str]:
        """List its objects and prefixes."""
        with as_os_errors():
            found = self._client.list_with_delimiter(self._prefix + folder)
        return [
            path.rpartition("/")[2]
            for path in [*(each["path"] for each in found["objects"]), *found["common_prefixes"]]
        ]

    def total(self, folder: str) -> tuple[int, float]:
        """List all objects below it."""
        found = self._below(folder)
        return sum(each["size"] for each in found), max(
            (each["last_modified"].timestamp() for each in found), default=0.0
        )

    def delete(self, names: Iterable[str]) -> None:
        """Delete them, each by a request of its own, which every service has."""
        for name in names:
            with suppress(FileNotFoundError), as_os_errors():
                self._client.delete(self._prefix + name)

    def delete_folder(self, folder: str) -> None:
        """Delete all objects below it."""
        self.delete([each["path"].removeprefix(self._prefix) for each in self._below(folder)])

    def _below(self, folder: str) -> list[Any]:
        with as_os_errors():
            return [each for chunk in self._client.list(self._prefix + folder) for each in chunk]


class ObjectWriter(io.RawIOBase):
    """An object that is written from its beginning to its end, as a file."""

    _upload: Any = None

    def __init__(self, client: Any, path: str) -> None:
        from obstore import open_writer

        self._written = 0
        with as_os_errors():
            self._upload = open_writer(client, path, buffer_size=_PART_BYTES, max_concurrency=_PARTS)

    def writable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Return the bytes written."""
        return self._written

    def write(self, data: Any) -> int:
        """Write all of it. Raises: OSError."""
        view = memoryview(data)
        with as_os_errors():
            self._upload.write(view)
        self._written += view.nbytes
        return view.nbytes

    def close(self) -> None:
        """End the upload: then the object is there. Raises: OSError."""
        if not self.closed:
            super().close()
            if self._upload is not None:
                with as_os_errors():
                    self._upload.close()


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Raise the errors of obstore as OSError, but for FileNotFoundError."""
    from obstore.exceptions import BaseError

    try:
        yield
    except BaseError as error:
        raise OSError(words_of(error)) from error
