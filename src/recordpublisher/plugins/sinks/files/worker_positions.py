"""FileWorkerPositions: commits files together with the positions of a worker (ELASTIC assignment: E1, E3)."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from recordpublisher.fetcher.conditional_store import ConflictError, VersionedValue
from recordpublisher.fetcher.sink import State, WorkerPositions
from recordpublisher.fetcher.stored_documents import read_document
from recordpublisher.plugins.stores.folder import FolderStore
from recordpublisher.publishers.errors import FencedError

from .staged_files import HIDDEN, Files, StagedFile, StagedFiles

WORKERS = "workers"
CommitFiles = Callable[[Callable[[Files], Awaitable[None]], Collection[str] | None], Awaitable[None]]
"""Commits what the sink has of these shards: calls the function with the files, and forgets them when it returns."""


class _Entry(msgspec.Struct):
    positions: State | None
    files: Sequence[StagedFile]
    sealed: bool


@dataclass(slots=True)
class _Life:
    """One worker of this process, as long as it is one: the version of its entry, and the number of its commits."""

    worker: str
    version: str = ""
    commits: int = 0

    @property
    def folder(self) -> str:
        return f"staged-{self.worker}"


class FileWorkerPositions(WorkerPositions):
    """Owns the entry of this process's worker: a value in a store without locks, which a seal replaces.

    An entry names the files of its last commit: who seals it finishes their renames.
    """

    def __init__(self, path: Path, commit_files: CommitFiles, on_join: Callable[[], None]) -> None:
        self._staged = StagedFiles(path)
        self._store = FolderStore(path / HIDDEN / WORKERS, None)
        self._commit_files = commit_files
        self._on_join = on_join
        self._life = _Life("")

    async def join(self, worker: str) -> None:
        """Store the worker's entry, and finish the renames of others: one may have died before.

        Raises: StateError, StoreUnavailableError.
        """
        self._on_join()
        self._life = life = self._life if worker == self._life.worker else _Life(worker)
        for name, found in (await self._store.list("")).items():
            await asyncio.to_thread(self._staged.finish, self._entry(name, found).files)
        try:
            life.version = await self._store.put_if_absent(worker, _content(None, []))
        except ConflictError as error:
            if error.current is None:
                raise FencedError(f"worker {worker} was forgotten in {self._store.place}") from error
            life.version = error.current.version

    async def commit(self, positions: State, shards: Collection[str] | None) -> None:
        """Write the files of these shards and store the positions with their names. Raises: FencedError, SinkError."""
        life = self._life  # a commit that takes long may end when another worker has joined: it stays its own worker's
        life.commits += 1

        async def store(files: Files) -> None:
            staged = await asyncio.to_thread(self._staged.stage, life.folder, life.commits, files)
            try:
                content = _content(positions, staged)
                life.version = await self._store.compare_and_set(life.worker, content, life.version)
            except ConflictError as error:
                await asyncio.to_thread(self._staged.drop, life.folder)
                raise FencedError(f"worker {life.worker} was sealed in {self._store.place}") from error
            await asyncio.to_thread(self._staged.finish, staged)

        await self._commit_files(store, shards)

    async def read(self, worker: str) -> State | None:
        """Read an entry's positions. Raises: StateError."""
        found = await self._store.get(worker)
        return None if found is None else self._entry(worker, found).positions

    async def seal(self, worker: str) -> State | None:
        """Seal an entry, and finish the renames of its last commit. Raises: StateError."""
        while (found := await self._store.get(worker)) is not None:
            entry = self._entry(worker, found)
            if not entry.sealed:
                try:
                    await self._store.compare_and_set(
                        worker, _content(entry.positions, entry.files, is_sealed=True), found.version
                    )
                except ConflictError:
                    continue
            await asyncio.to_thread(self._staged.finish, entry.files)
            return entry.positions
        return None

    async def forget(self, worker: str) -> None:
        """Delete an entry, and the files that were staged and not committed."""
        await self.seal(worker)
        await self._store.delete(worker)
        await asyncio.to_thread(self._staged.drop, f"staged-{worker}")

    def _entry(self, worker: str, found: VersionedValue) -> _Entry:
        return read_document(found.value, _Entry, f"the entry of worker {worker} in {self._store.place}")


def _content(positions: State | None, files: Sequence[StagedFile], is_sealed: bool = False) -> bytes:
    return msgspec.json.encode(_Entry(positions, files, is_sealed))
