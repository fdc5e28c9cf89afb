"""FolderObjects: an object store in a folder with hard links."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from recordpublisher.publishers.errors import StateError

from ..ports import ObjectStore
from .hard_links import link_durably, sync_folder, write_durably

T = TypeVar("T")


class FolderObjects(ObjectStore):
    """Owns the files below a folder, local or on a network file system, that everybody sees who uses the store."""

    def __init__(self, location: str | Path) -> None:
        self._root = Path(location)

    async def put_if_absent(self, name: str, content: bytes) -> bytes:
        """By a hard link."""
        path = self._root / name

        def put() -> bytes:
            while not link_durably(path.parent, path.name, content):
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    return path.read_bytes()
            return content

        return await self._aside(put)

    async def put(self, name: str, content: bytes) -> None:
        """Write the file; whoever is told its name afterwards finds it whole."""
        path = self._root / name

        def put() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, content)
            sync_folder(path.parent)

        await self._aside(put)

    async def get(self, name: str) -> bytes | None:
        """The file's content."""

        def get() -> bytes | None:
            try:
                return (self._root / name).read_bytes()
            except FileNotFoundError:
                return None

        return await self._aside(get)

    async def names(self, beginning: str) -> list[str]:
        """The files of one folder whose names begin so."""
        folder, _, start = beginning.rpartition("/")

        def names() -> list[str]:
            try:
                found = [name for name in os.listdir(self._root / folder) if name.startswith(start)]
            except FileNotFoundError:
                return []
            return sorted(f"{folder}/{name}" for name in found if not name.startswith("."))

        return await self._aside(names)

    async def delete(self, names: Iterable[str]) -> None:
        """Unlink."""
        given = list(names)

        def delete() -> None:
            for name in given:
                (self._root / name).unlink(missing_ok=True)

        await self._aside(delete)

    async def _aside(self, work: Callable[[], T]) -> T:
        """In a thread; a write that was begun is finished, also when nobody waits for it any more."""
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise StateError(f"the folder {self._root} cannot be used: {error}") from error
