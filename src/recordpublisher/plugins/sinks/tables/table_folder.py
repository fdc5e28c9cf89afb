"""Reads and writes the files of a table, on the local disk or in object storage."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from recordpublisher.plugins.stores.durable_files import DurableFile, exists
from recordpublisher.plugins.stores.obstore_client import error_words

STAGED = "_recordpublisher/staged"
"""The folder with an empty file (mark) for each stage that is not published. Table formats ignore folders that begin with `_`."""
DATA = "data"
_PART_BYTES, _PARTS = 10 * 2**20, 2
"""Size of an upload's parts (bytes), and how many are sent at a time.

They bound the memory of each open file, and many files are open. A file smaller than a part is one request.
"""


class TableFolder:
    """The folder of a table on the local disk. All methods block, and raise OSError. Names of files are relative to the folder."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def create(self, name: str) -> OutputFile:
        """Begin a file, which is complete only once it is closed. Raises: FileExistsError if there is such a file."""
        file = DurableFile(self._path / name, is_new=True)
        return OutputFile(name, file, file.close)

    def write_empty(self, name: str) -> None:
        """Write an empty file."""
        self.create(name).close()

    def size(self, name: str) -> int | None:
        """Return the size of a file (bytes), or None if there is no such file."""
        file = self._path / name
        # Since Python 3.14, `is_file` is False on a disk that is unavailable, and a missing mark would count as a published commit.
        return file.stat().st_size if exists(file) else None

    def read(self, name: str) -> bytes:
        """Return the content of a small file."""
        return (self._path / name).read_bytes()

    def source(self, name: str, *, whole: bool) -> Any:
        """Return the object from which pyarrow reads a file. `whole`: whether the complete file will be read."""
        return str(self._path / name)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; none if there is no such folder."""
        with suppress(FileNotFoundError):
            return os.listdir(self._path / folder)
        return []

    def total(self, folder: str) -> tuple[int, float]:
        """Return the size of all files in a folder (bytes), and when the newest was written (epoch seconds, 0 if there is no file)."""
        found = [file.stat() for file in (self._path / folder).rglob("*") if file.is_file()]
        return sum(each.st_size for each in found), max((each.st_mtime for each in found), default=0.0)

    def delete(self, names: Iterable[str]) -> None:
        """Delete the files that exist among these."""
        for name in names:
            (self._path / name).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with its files, if it exists."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._path / folder)


class ObjectFolder(TableFolder):
    """The objects below a prefix, which obstore's client reads and writes."""

    def __init__(self, client: Any, prefix: str = "") -> None:
        """Open the folder with obstore's client.

        `prefix`: the path of the folder below the client's own prefix, with a slash at its end.
        """
        self._client, self._prefix = client, prefix

    def create(self, name: str) -> OutputFile:
        """Begin an object, which exists once it is closed. It replaces an object of the same name."""
        stream = ObjectWriter(self._client, self._prefix + name)
        return OutputFile(name, stream, stream.close)

    def size(self, name: str) -> int | None:
        """Return the size of an object (bytes), from a HEAD request; None if there is no such object."""
        try:
            with as_os_errors():
                return int(self._client.head(self._prefix + name)["size"])
        except FileNotFoundError:
            return None

    def read(self, name: str) -> bytes:
        """Return the content of a small object."""
        with as_os_errors():
            return bytes(self._client.get(self._prefix + name).bytes())

    def source(self, name: str, *, whole: bool) -> Any:
        """Return the content of an object if `whole`, else an open file that reads parts of it."""
        return self.read(name) if whole else io.BufferedReader(ObjectReader(self._client, self._prefix + name))

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects and prefixes directly below a folder."""
        with as_os_errors():
            found = self._client.list_with_delimiter(self._prefix + folder)
        return [
            path.rpartition("/")[2]
            for path in [*(each["path"] for each in found["objects"]), *found["common_prefixes"]]
        ]

    def total(self, folder: str) -> tuple[int, float]:
        """Return the size of all objects below a folder (bytes), and when the newest was written (epoch seconds, 0 if there is none)."""
        found = self._below(folder)
        return sum(each["size"] for each in found), max(
            (each["last_modified"].timestamp() for each in found), default=0.0
        )

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects that exist, each with its own request, because not every service has a request for many."""
        for name in names:
            with suppress(FileNotFoundError), as_os_errors():
                self._client.delete(self._prefix + name)

    def delete_folder(self, folder: str) -> None:
        """Delete all objects below a folder."""
        self.delete([each["path"].removeprefix(self._prefix) for each in self._below(folder)])

    def _below(self, folder: str) -> list[Any]:
        with as_os_errors():
            return [each for chunk in self._client.list(self._prefix + folder) for each in chunk]


class OutputFile(NamedTuple):
    """A file that is being written; `close` makes it durable."""

    name: str
    target: Any
    close: Callable[[], None]


class ObjectWriter(io.RawIOBase):
    """A file object that uploads an object from its beginning to its end."""

    _upload: Any = None

    def __init__(self, client: Any, path: str) -> None:
        from obstore import open_writer

        self._written = 0
        with as_os_errors():
            self._upload = open_writer(client, path, buffer_size=_PART_BYTES, max_concurrency=_PARTS)

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._written

    def write(self, data: Any) -> int:
        """Write all of the data. Raises: OSError if the upload fails."""
        view = memoryview(data)
        with as_os_errors():
            self._upload.write(view)
        self._written += view.nbytes
        return view.nbytes

    def close(self) -> None:
        """End the upload, after which the object exists. Raises: OSError if the upload fails."""
        if not self.closed:
            super().close()
            if self._upload is not None:
                with as_os_errors():
                    self._upload.close()


class ObjectReader(io.RawIOBase):
    """A file object that reads an object of the storage. Raises: OSError if the object cannot be opened or read."""

    def __init__(self, client: Any, path: str) -> None:
        from obstore import open_reader

        with as_os_errors():
            self._object = open_reader(client, path)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset in the object, and return the new offset (bytes from the beginning)."""
        return int(self._object.seek(offset, whence))

    def tell(self) -> int:
        """Return where the next read begins (bytes)."""
        return int(self._object.tell())

    def readinto(self, buffer: Any) -> int:
        """Read at most as many bytes as fit into the buffer, and return their number."""
        with as_os_errors():
            found = memoryview(self._object.read(len(buffer)))
        buffer[: len(found)] = found
        return len(found)


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Raise errors of obstore as OSError. A FileNotFoundError stays as it is."""
    from obstore.exceptions import BaseError

    try:
        yield
    except BaseError as error:
        raise OSError(error_words(error)) from error
