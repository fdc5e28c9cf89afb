"""Defines the operations that a sink needs of a table format, and compares the columns of rows with the columns of a table."""

from __future__ import annotations

import io
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from recordpublisher.fetcher.sink import Staged
from recordpublisher.plugins.columns.partitions import Partitions
from recordpublisher.plugins.deserializers.schemas import is_inferred
from recordpublisher.plugins.stores.folder_store import DurableFile
from recordpublisher.plugins.stores.object_storage import words_of
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.job_properties import SCHEMA
from recordpublisher.publishers.properties.properties import Properties

_REWRITTEN = "a table with the types of the records: stop the job, and rewrite the table with them, as the page about lakes shows"


class NoTableError(Exception):
    """Raised if there is no table yet."""


class ConflictingCommitError(Exception):
    """Raised if another commit was faster, or if the result of a commit is unknown.

    The caller loads the table again, which shows whether the number of the commit is stored.
    """


class LakeTable(ABC):
    """A table that keeps the last number of each writer.

    All methods but `refresh` block. They raise OSError if a later call may succeed, and StateError if not. `folder`, `describe` and
    `check_rows` may be called from any thread. The others are called one at a time, so that `last_number` and `commit` see the same
    loaded version.
    """

    keeps_partition_columns = True
    """Whether files include the columns by which the table is partitioned."""
    numbers_expire = False
    """Whether the table may forget the number of a writer by itself."""

    async def refresh(self) -> None:  # noqa: B027 - optional on purpose
        """Find credentials that are valid now. Called on the event loop before the other methods.

        Raises: KinesisError or StoreUnavailableError if they cannot be found.
        """

    def check_rows(self, rows: pa.RecordBatch, partitions: Partitions) -> None:  # noqa: B027 - optional on purpose
        """Check rows before they are written; may be called from any thread.

        Raises: ValueError if the rows could be committed but never published.
        """

    @abstractmethod
    def prepare(self, schema: pa.Schema, partitions: Partitions, *, may_change: bool = True) -> Mapping[str, str]:
        """Create the table, or compare its columns and partitions, and add columns if that is wanted.

        Return the types of the rows' columns. With `may_change` False, nothing is created or added.

        Raises: ConfigurationError if the columns or partitions differ, or if the table cannot accept rows of this sink.
        """

    @abstractmethod
    def columns(self) -> pa.Schema:
        """Return the columns of the newest version; none if there is no table."""

    @abstractmethod
    def look_again(self, schema: pa.Schema, partitions: Partitions) -> None:
        """Prepare the table again if its columns, partitions or settings have changed since.

        Raises: ConfigurationError if the table was deleted, or no longer accepts the rows (see `prepare`).
        """

    @abstractmethod
    def misfit(self, loaded: Any, columns: Mapping[str, str], partitions: Collection[str]) -> str | None:
        """Return why rows with these columns cannot be added to this version, or would lose values; None if they can be added."""

    @abstractmethod
    def folder(self) -> TableFolder:
        """Return the folder of the table's files."""

    @abstractmethod
    def location(self) -> str:
        """Return the location of the table's folder, in the form that a `ConditionalStore` accepts."""

    @abstractmethod
    def live_files(self, loaded: Any) -> Mapping[str, bool]:
        """Return the files of this version by path, relative to the folder, and whether rows of them were deleted."""

    def describe(self, footer: Any) -> str | None:
        """Return what the table format stores about a file, from the file's footer; None if it stores nothing."""
        return None

    @abstractmethod
    def load(self) -> Any:
        """Return the newest version of the table. Raises: NoTableError if there is no table."""

    @abstractmethod
    def last_number(self, loaded: Any, writer: str) -> int:
        """Return the last number of a writer in this version, or 0 if it has none."""

    @abstractmethod
    def writers(self, loaded: Any) -> Collection[str]:
        """Return the writers of the last commits."""

    @abstractmethod
    def commit(
        self, loaded: Any, staged: Sequence[Staged], numbers: Mapping[str, int], retired: Collection[str] = ()
    ) -> None:
        """Add the files, perhaps none, and store the numbers of these writers.

        `retired`: writers whose numbers are no longer needed.

        Raises: ConflictingCommitError if another process has committed a number of one of these writers after this version.
        """


def chosen_evolution(properties: Properties, declared: Property[str]) -> str:
    """Return FIXED or EVOLVE. Inferred columns imply EVOLVE. Raises: ConfigurationError if the columns are inferred and FIXED is set."""
    if is_inferred(properties):
        if properties.is_set(declared) and properties.value(declared) != "EVOLVE":
            reason = f"{SCHEMA.key}=INFER adds columns"
            raise ConfigurationError(declared.key, properties.value(declared), "EVOLVE", reason=reason)
        return "EVOLVE"
    return properties.value(declared)


def types_by_path(fields: Iterable[Any]) -> dict[str, str]:
    """Return the types of columns of Delta Lake or Iceberg by path, including the fields inside a column.

    Such paths are `address.country` for a field of an object, `tags[]` for the items of a list or the values of a map, and `sums[key]`
    for the keys of a map.
    """
    types: dict[str, str] = {}
    for field in fields:
        _add_types(types, field.name, _type_of(field))
    return types


def _add_types(types: dict[str, str], path: str, kind: Any) -> None:
    if hasattr(kind, "fields"):
        types[path] = "an object"
        for field in kind.fields:
            _add_types(types, f"{path}.{field.name}", _type_of(field))
    elif hasattr(kind, "element_type"):
        types[path] = "a list"
        _add_types(types, f"{path}[]", kind.element_type)
    elif hasattr(kind, "key_type"):
        types[path] = "a map"
        _add_types(types, f"{path}[key]", kind.key_type)
        _add_types(types, f"{path}[]", kind.value_type)
    else:
        types[path] = str(getattr(kind, "type", kind))  # deltalake's own text is PrimitiveType("long")


def _type_of(field: Any) -> Any:
    return field.field_type if hasattr(field, "field_type") else field.type


def is_column_or_part(column: str, path: str) -> bool:
    """Return whether a path of `types_by_path` is this column, or inside it."""
    return path == column or path.startswith((f"{column}.", f"{column}["))


def differing(wanted: Mapping[str, str], there: Mapping[str, str]) -> str | None:
    """Return how the columns of rows differ from the columns of a table, or None if they do not. The table may have more columns.

    `wanted`, `there`: the types by path (see `types_by_path`).
    """
    for name, kind in wanted.items():
        if there.get(name) != kind:
            found = "no longer exists" if name not in there else f"is {there[name]} now"
            return f"the column {name!r}, which is {kind} in the records, {found}"
    return None


def check_columns(
    wanted: Mapping[str, str],
    there: Mapping[str, str],
    table: str,
    declared: Property[str],
    columns: str,
    *,
    may_widen: bool = False,
) -> list[str]:
    """Return the paths of columns that the table lacks, or has with a narrower type.

    - `wanted`, `there`: the types by path of the rows and of the table (see `types_by_path`).
    - `columns`: the value of the property `declared`, FIXED or EVOLVE.
    - `may_widen`: whether EVOLVE also accepts another type, which the table format has checked.

    Raises: ConfigurationError if a column has another type, if its name differs from another one in case only, or if it is missing and must
    not be added.
    """
    by_lower = {name.lower(): name for name in there}
    missing: list[str] = []
    for name, kind in wanted.items():
        if (twin := by_lower.get(name.lower(), name)) != name and name not in there:
            reason = f"the field {name!r} differs from the column {twin!r} of {table} in case only"
            raise ConfigurationError(declared.key, columns, f"a field with the name {twin!r}", reason=reason)
        is_other = name in there and there[name] != kind
        if is_other and not (may_widen and columns == "EVOLVE"):
            reason = f"column {name!r} is {there[name]} in {table}, and {kind} in the records"
            valid = "EVOLVE, which widens the column" if may_widen else _REWRITTEN
            raise ConfigurationError(declared.key, columns, valid, reason=reason)
        if is_other or name not in there:
            missing.append(name)
    if missing and columns == "FIXED":
        reason = f"{table} has no column {', '.join(map(repr, missing))}"
        raise ConfigurationError(declared.key, columns, "EVOLVE, which adds columns", reason=reason)
    return missing


# Reads and writes the files of a table, on the local disk or in object storage.

STAGED = "_recordpublisher/staged"
"""The folder with a mark for each stage that is not published. Table formats ignore folders that begin with `_`."""
DATA = "data"
_PART_BYTES, _PARTS = 10 * 2**20, 2
"""Size of an upload's parts (bytes), and how many are sent at a time.

They bound the memory of each open file, and many files are open. A file smaller than a part is one request.
"""


class OutputFile(NamedTuple):
    """A file that is being written; `close` makes it durable."""

    name: str
    target: Any
    close: Callable[[], None]


class TableFolder:
    """The folder of a table on the local disk. Its methods block, and raise OSError. Names are relative to it."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def create(self, name: str) -> OutputFile:
        """Begin a file. It is complete only once it is closed. Raises: FileExistsError if there is such a file."""
        file = DurableFile(self._path / name, is_new=True)
        return OutputFile(name, file, file.close)

    def mark(self, name: str) -> None:
        """Write an empty file."""
        self.create(name).close()

    def size(self, name: str) -> int | None:
        """Return the size of a file (bytes), or None if there is no such file."""
        file = self._path / name
        return file.stat().st_size if file.is_file() else None

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
        """Return the content of an object, or an open file that reads parts of it."""
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
        """Move to a place in the object, and return it (bytes from the beginning)."""
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
        raise OSError(words_of(error)) from error
