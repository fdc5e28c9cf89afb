"""A conditional store in a folder, without locks. To replace a value, a write renames the file whose name has the value's version."""

import asyncio
import contextlib
import errno
import os
import random
import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError, VersionedValue, new_version
from recordpublisher.publishers.errors import ConfigurationError, StateError, StoreUnavailableError
from recordpublisher.publishers.properties.job_properties import STATE_URI
from recordpublisher.publishers.properties.properties import Properties

from .durable_files import make_folder, path_of, sync, why_not_writable, write_file

T = TypeVar("T")
_SUFFIX, _POINTER, _VALUE = ".versions", "current-", "value-"
_PLAIN_FILE = "file"
"""The version that a plain file has. Earlier formats stored values as plain files.

Such a file can be read, so that the reader can refuse its format. It cannot be replaced.
"""
_NAME_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
"""The errors of renaming a folder to a name that is taken. POSIX allows either of them."""
_AWAY = {
    errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EHOSTDOWN,
    errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH,
}  # fmt: skip
"""The errors of a network file system that is unavailable."""
_ATTEMPTS, _PUT_ATTEMPTS = 1000, 100
_PAUSE_SECONDS = 0.001
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}")
"""Matches temporary folders. A first value is written in such a folder, and a deleted value is moved into one."""
_ABANDONED_SECONDS = 60
"""Age from which a temporary folder is removed (seconds). Its process was probably killed, because a write needs much less time."""


class FolderStore(ConditionalStore):
    """Stores each value in a folder `NAME.versions` with two files: `value-V` and the empty `current-V`. V is the version.

    - The first value is written into a temporary folder. This folder is then renamed, which fails if the name is taken.
    - A later value is written into the folder. Then `current-V` is renamed to `current-W`, which fails if another process was faster.

    So no lock is needed. But the file system, local or network, must have atomic renames. Later writes remove what a killed process has
    left.

    - `folder`: a path, or a file: URI. The first value creates it.
    - `key`: the property that contains the folder. If it is None, the folder is not checked.
    - `in_thread`: whether file operations run in a thread. If False, the calls block, for callers without an event loop.

    Raises: ConfigurationError if the folder is not valid, or if this user can neither write nor create it.
    """

    def __init__(
        self,
        folder: str | Path,
        key: str | None = STATE_URI.key,
        properties: Properties | None = None,
        *,
        in_thread: bool = True,
    ) -> None:
        self.place = str(folder) if key is None else path_of(str(folder), key)
        self._root = Path(self.place).absolute()  # User code may change the current folder.
        self._uses_threads = in_thread
        if key is not None and (reason := why_not_writable(self._root)) is not None:
            raise ConfigurationError(key, self.place, "a folder that this user can write", reason=reason)

    async def get(self, name: str) -> VersionedValue | None:
        """Return the value and its version, or None if there is no value."""
        return await self._run(lambda: _read(self._path(name)))

    async def put_if_absent(self, name: str, value: bytes) -> str:
        """Store the first value of a name, by renaming a new folder. Return its version."""
        return await self._run(lambda: self._put_if_absent(name, value))

    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        """Replace the value by renaming the file that names its version. Return the new version."""
        return await self._run(lambda: self._compare_and_set(name, value, expected))

    async def list(self, prefix: str, *, consistent: bool = True) -> dict[str, VersionedValue]:
        """Return the values whose names have the prefix."""

        def values() -> dict[str, VersionedValue]:
            found = {name: _read(self._path(name)) for name in self._names(prefix)}
            return {name: entry for name, entry in found.items() if entry is not None}

        return await self._run(values)

    async def list_versions(self, prefix: str) -> dict[str, str]:
        """Return the versions of the values whose names have the prefix."""

        def versions() -> dict[str, str]:
            found = {name: _version(self._path(name)) for name in self._names(prefix)}
            return {name: version for name, version in found.items() if version is not None}

        return await self._run(versions)

    async def list_names(self, prefix: str, before: str | None = None) -> Sequence[str]:
        """Return the names with the prefix, or with `before` only those that sort before it. The folders of the values are not read."""
        return await self._run(lambda: self._names(prefix, before))

    async def delete(self, *names: str) -> None:
        """Delete values. The folder of each is first renamed, so that a late write finds nothing under the name. Then it is removed."""

        def delete() -> None:
            for name in names:
                self._delete(name)

        await self._run(delete)

    def _path(self, name: str) -> Path:
        return self._root / f"{self._checked(name)}{_SUFFIX}"

    def _checked(self, name: str) -> str:
        """Return the name after a check, because it may come from a document of another program.

        Raises: StateError if the name leads out of the folder.
        """
        if name.startswith("/") or ".." in name.split("/"):
            raise StateError(f"{name!r} is not a valid name for a value in {self.place}: it leads out of this folder")
        return name

    async def _run(self, work: Callable[[], T]) -> T:
        """Run file operations, and return their result. A write that has begun is completed even if its caller is cancelled."""
        try:
            return await asyncio.to_thread(work) if self._uses_threads else work()
        except OSError as error:
            raise folder_error(self.place, error) from error

    def _put_if_absent(self, name: str, value: bytes) -> str:
        path, version = self._path(name), new_version()
        reason = ""
        for _ in range(_PUT_ATTEMPTS):
            try:
                if self._put_new(path, version, value):
                    return version
                if (current := _read(path)) is not None:
                    if current.version == version:  # A network file system has sent the rename twice.
                        return version
                    raise ConflictError(self.place, name, current)
                # The value was deleted after this write had found the name taken, so it tries again.
                reason = "the name is taken, but no value is stored there"
            except FileNotFoundError as error:
                # A concurrent delete has removed the empty parent, or the parent cannot be created.
                reason = str(error)
            time.sleep(_PAUSE_SECONDS * (0.5 + random.random()))  # noqa: S311 - jitter
        raise StateError(f"{path} cannot be written: {reason}")

    def _put_new(self, path: Path, version: str, value: bytes) -> bool:
        """Write the first value into a temporary folder, and rename the folder. Return whether the name was free."""
        make_folder(path.parent)
        aside = self._root / f".{version}"
        try:
            aside.mkdir()
            self._remove_abandoned(aside)
            write_file(aside / f"{_VALUE}{version}", value)
            (aside / f"{_POINTER}{version}").touch()
            sync(aside)
            try:
                aside.rename(path)
            except OSError as error:
                if error.errno in _NAME_TAKEN:
                    return False
                raise
            sync(path.parent)
            return True
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        path, version = self._path(name), new_version()
        written, pointer = path / f"{_VALUE}{version}", path / f"{_POINTER}{version}"
        try:
            # Other writes that have begun by now expect `expected` or an older version, so this rename makes them fail.
            obsolete = [file for file in os.listdir(path) if file.startswith(_VALUE)]
            write_file(written, value)
            sync(path)
            (path / f"{_POINTER}{expected}").rename(pointer)
        except FileNotFoundError as error:
            if not pointer.exists():  # If it exists, a network file system has sent the rename twice.
                written.unlink(missing_ok=True)
                raise ConflictError(self.place, name, _read(path)) from error
        with contextlib.suppress(FileNotFoundError):  # Another process has deleted the value in the meantime.
            sync(path)
        for file in obsolete:
            (path / file).unlink(missing_ok=True)
        return version

    def _remove_abandoned(self, own: Path) -> None:
        """Remove temporary folders that are a minute older than the folder `own`, by the clock of the file system.

        Each folder is first renamed. If its process was only suspended, it then finds its folder missing, and writes it again.
        """
        now = own.stat().st_mtime
        for folder in self._root.glob(".*"):
            with contextlib.suppress(FileNotFoundError):  # Another process has removed or renamed it.
                if _TEMPORARY.fullmatch(folder.name) and now - folder.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(folder.rename(self._root / f".{new_version()}"), ignore_errors=True)

    def _names(self, prefix: str, before: str | None = None) -> Sequence[str]:
        found: list[str] = []
        waiting = [self._checked(prefix).rpartition("/")[0]]
        while waiting:
            above = waiting.pop()
            for child, is_folder in _children(self._root / above):
                path = f"{above}/{child}" if above else child
                name = path.removesuffix(_SUFFIX)
                if not name.startswith(prefix) or (before is not None and name >= before):
                    continue  # All names inside a folder that sorts after `before` sort after it as well.
                if is_folder and name == path:
                    waiting.append(path)
                else:
                    found.append(name)
        return sorted(found)

    def _delete(self, name: str) -> None:
        path = self._path(name)
        aside = self._root / f".{new_version()}"
        try:
            path.rename(aside)
        except FileNotFoundError:
            if not aside.exists():  # If it exists, a network file system has sent the rename twice.
                return
        try:
            sync(path.parent)
        except FileNotFoundError:  # A concurrent delete has removed the empty folder.
            sync(self._root)
        shutil.rmtree(aside, ignore_errors=True)
        for folder in path.relative_to(self._root).parents[:-1]:
            with contextlib.suppress(OSError):  # The folder has other values.
                (self._root / folder).rmdir()


def folder_error(folder: str | Path, error: OSError, way: str = "") -> StateError:
    """Return the error of this package for an OSError in a folder: StoreUnavailableError if a retry may help, else StateError.

    - `way`: advice for the user. It is added to the message.
    """
    kind = StoreUnavailableError if error.errno in _AWAY else StateError
    return kind(f"the folder {folder} cannot be used: {error}{way}")


def _read(path: Path) -> VersionedValue | None:
    """Return the current value, or None if there is none.

    The value is read again if it was replaced after its version was read.
    """
    for _ in range(_ATTEMPTS):
        if (version := _version(path)) is None:
            return None
        try:
            file = path.with_suffix("") if version == _PLAIN_FILE else path / f"{_VALUE}{version}"
            return VersionedValue(file.read_bytes(), version)
        except FileNotFoundError:
            time.sleep(_PAUSE_SECONDS)
    raise StateError(
        f"{path} cannot be read: another program has removed the file of its current version. Restore the folder from a copy"
    )


def _version(path: Path) -> str | None:
    """Return the version of the value in this folder, or None if there is no value.

    The version is in the name of the empty file `current-V`. While the file is being renamed, a listing may show two such names or none.
    The folder is then listed again.
    """
    for _ in range(_ATTEMPTS):
        try:
            names = os.listdir(path)
        except FileNotFoundError:
            return _PLAIN_FILE if path.with_suffix("").is_file() else None
        versions = [name.removeprefix(_POINTER) for name in names if name.startswith(_POINTER)]
        if len(versions) == 1:
            return versions[0]
        time.sleep(_PAUSE_SECONDS)
    raise StateError(f"{path} cannot be read: it has no file that names the current version")


def _children(folder: Path) -> list[tuple[str, bool]]:
    """Return the name of each file and folder inside a folder, and whether it is a folder. Names that begin with a dot are left out."""
    try:
        with os.scandir(folder) as entries:
            return [(entry.name, entry.is_dir()) for entry in entries if not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
