"""FileWorkerPositions: commits files together with the positions of a worker (ELASTIC assignment: E1, E3)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

from recordpublisher.fetcher.conditional_store import ConflictError, VersionedValue
from recordpublisher.fetcher.worker_positions import State, WorkerPositions
from recordpublisher.plugins.stores.folder import FolderStore
from recordpublisher.publishers.errors import FencedError, StateError

from .staged_files import HIDDEN, Files, StagedFiles

WORKERS = "workers"
CommitFiles = Callable[[Callable[[Files], Awaitable[None]], Collection[str] | None], Awaitable[None]]
"""Commits what the sink has of these shards: calls the function with the files, and forgets them when it returns."""


class FileWorkerPositions(WorkerPositions):
    """Owns the entry of this process's worker: a value in a store without locks, which a seal replaces.

    An entry names the files of its last commit: who seals it finishes their renames.
    """

    def __init__(self, path: Path, commit_files: CommitFiles, on_join: Callable[[], None]) -> None:
        self._staged = StagedFiles(path)
        self._store = FolderStore(path / HIDDEN / WORKERS)
        self._commit_files = commit_files
        self._on_join = on_join
        self._worker = ""
        self._version = ""
        self._commits = 0

    async def join(self, worker: str) -> None:
        """Store the worker's entry, and finish the renames of others: one may have died before.

        Raises: StateError, StoreUnavailableError.
        """
        self._on_join()
        for name, found in (await self._store.list("")).items():
            await asyncio.to_thread(self._staged.finish, self._entry(name, found)["files"])
        self._worker, self._commits = worker, 0
        try:
            self._version = await self._store.put_if_absent(worker, _content(None, []))
        except ConflictError as error:
            if error.current is None:
                raise FencedError(f"worker {worker} was forgotten in {self._store.place}") from error
            self._version = error.current.version

    async def commit(self, positions: State, shards: Collection[str] | None) -> None:
        """Write the files of these shards and store the positions with their names. Raises: FencedError, SinkError."""
        self._commits += 1

        async def store(files: Files) -> None:
            staged = await asyncio.to_thread(self._staged.stage, f"staged-{self._worker}", self._commits, files)
            try:
                content = _content(positions, staged)
                self._version = await self._store.compare_and_set(self._worker, content, self._version)
            except ConflictError as error:
                await asyncio.to_thread(self._staged.drop, f"staged-{self._worker}")
                raise FencedError(f"worker {self._worker} was sealed in {self._store.place}") from error
            await asyncio.to_thread(self._staged.finish, staged)

        await self._commit_files(store, shards)

    async def read(self, worker: str) -> State | None:
        """Read an entry's positions. Raises: StateError."""
        found = await self._store.get(worker)
        return None if found is None else self._entry(worker, found)["positions"]

    async def seal(self, worker: str) -> State | None:
        """Seal an entry, and finish the renames of its last commit. Raises: StateError."""
        while (found := await self._store.get(worker)) is not None:
            entry = self._entry(worker, found)
            if not entry["sealed"]:
                try:
                    await self._store.compare_and_set(
                        worker, _content(entry["positions"], entry["files"], is_sealed=True), found.version
                    )
                except ConflictError:
                    continue
            await asyncio.to_thread(self._staged.finish, entry["files"])
            return entry["positions"]  # type: ignore[no-any-return]
        return None

    async def forget(self, worker: str) -> None:
        """Delete an entry, and the files that were staged and not committed."""
        await self.seal(worker)
        await self._store.delete(worker)
        await asyncio.to_thread(self._staged.drop, f"staged-{worker}")

    def _entry(self, worker: str, found: VersionedValue) -> dict[str, Any]:
        try:
            content = json.loads(found.value)
            return {key: content[key] for key in ("positions", "files", "sealed")}
        except (ValueError, TypeError, KeyError) as error:
            raise StateError(
                f"the entry of worker {worker} in {self._store.place} cannot be read: {error!r}"
            ) from error


def _content(positions: State | None, files: Any, is_sealed: bool = False) -> bytes:
    return json.dumps({"positions": positions, "files": files, "sealed": is_sealed}).encode()
