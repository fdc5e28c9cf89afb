"""FileSubtaskPositions: commits files together with the positions of a subtask (STATIC assignment: S6)."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from recordpublisher.fetcher.conditional_store import ConflictError, VersionedValue
from recordpublisher.fetcher.sink import State
from recordpublisher.fetcher.stored_documents import Count, read_document
from recordpublisher.plugins.stores.folder import FolderStore
from recordpublisher.publishers.errors import FencedError, StoreUnavailableError

from .staged_files import HIDDEN, Files, StagedFile, StagedFiles

SUBTASKS = "subtasks"
MAX_ATTEMPTS, PAUSE_SECONDS = 100, 0.1
"""Of a write that others were faster with, and how long it waits at most until the next one."""


class _Entry(msgspec.Struct, frozen=True):
    """What is stored of a subtask: its positions, and the files of its last commit (where each is, and its name).

    `is_fresh`: this start has not committed yet. `is_fenced`: a start with another parallelism has the shards now.
    """

    subtask: Count
    parallelism: Count
    generation: Count = 0
    state: State | None = None
    files: Sequence[StagedFile] = ()
    is_fresh: bool = True
    is_fenced: bool = False


_Stored = dict[int, tuple[_Entry, str]]
"""The entry and its version, by subtask."""


class FileSubtaskPositions:
    """Owns the entry of this subtask: a value in a store without locks. So a process that is suspended in a commit blocks nobody.

    A checkpoint writes staged files, then commits: it replaces the entry by one with the positions and the files' names. Then it renames
    the files into place. After a crash, `open` finishes the renames of every commit and deletes staged files that were never committed.
    So no record is missing or duplicated, and no reader sees an incomplete file.
    """

    def __init__(self, path: Path) -> None:
        self._staged = StagedFiles(path)
        self._store = FolderStore(path / HIDDEN / SUBTASKS, None)
        self._entry, self._version = _Entry(0, 1), ""
        self._commits = 0
        self._has_former = False

    async def states(self) -> list[State]:
        """The positions of all subtasks, read only. Raises: StateError."""
        return [entry.state for entry, _ in (await self._entries()).values() if entry.state is not None]

    async def open(self, subtask: int, parallelism: int) -> list[State]:
        """Take the next generation, finish committed renames and return the positions. From now on earlier starts of this subtask, and
        all subtasks of a start with another parallelism, are fenced off. Raises: StateError, StoreUnavailableError."""
        self._commits = 0
        await self._take(subtask, parallelism)
        for each in await self._former():
            await self._fence(each)
        known = [entry for entry, _ in (await self._entries()).values()]
        for entry in known:
            await asyncio.to_thread(self._staged.finish, entry.files)
        for entry in known:
            if entry.subtask == subtask:
                await self._drop_staged(subtask, self._entry.generation - 1)
            elif entry.is_fenced:
                await self._drop_staged(entry.subtask, entry.generation)
        self._has_former = any(entry.is_fenced and entry.state is not None for entry in known)
        return [entry.state for entry in known if entry.state is not None]

    async def commit(self, contents: Files, state: State) -> None:
        """Write files and the positions. Raises: FencedError, StateError, StoreUnavailableError, OSError."""
        self._commits += 1
        folder = _staged_folder(self._entry.subtask, self._entry.generation)
        files = await asyncio.to_thread(self._staged.stage, folder, self._commits, contents)
        try:
            await self._replace(replace(self._entry, state=state, files=files, is_fresh=False))
        except ConflictError as error:
            raise self._fenced(error.current) from error
        await asyncio.to_thread(self._staged.finish, files)
        if self._has_former:
            await self._forget_former()

    async def _take(self, subtask: int, parallelism: int) -> None:
        for _ in range(MAX_ATTEMPTS):
            found = await self._store.get(_name(subtask))
            before = _Entry(subtask, parallelism) if found is None else self._parsed(_name(subtask), found)
            self._version = "" if found is None else found.version
            taken = replace(before, parallelism=parallelism, generation=before.generation + 1)
            try:
                return await self._replace(replace(taken, is_fresh=True, is_fenced=False))
            except ConflictError:  # a commit of the start before, or another start
                await _pause()
        raise self._refused(subtask)

    async def _fence(self, subtask: int) -> None:
        """Fence an entry, unless a subtask of this parallelism has it by now."""
        for _ in range(MAX_ATTEMPTS):
            if (found := await self._store.get(_name(subtask))) is None:
                return
            entry = self._parsed(_name(subtask), found)
            if entry.is_fenced or entry.parallelism == self._entry.parallelism:
                return
            try:
                await self._write(replace(entry, is_fenced=True), found.version)
            except ConflictError:
                await _pause()
            else:
                return
        raise self._refused(subtask)

    def _refused(self, subtask: int) -> StoreUnavailableError:
        name = f"{_name(subtask)} in {self._store.place}"
        return StoreUnavailableError(f"{name} was written by others {MAX_ATTEMPTS} times while it was taken")

    async def _forget_former(self) -> None:
        """Empty the entries of other parallelisms once every subtask of this start has committed: they are superseded."""
        entries = await self._entries()
        ours = [entry for entry, _ in entries.values() if entry.parallelism == self._entry.parallelism]
        if sum(not entry.is_fresh and not entry.is_fenced for entry in ours) < self._entry.parallelism:
            return
        for entry, version in entries.values():
            if entry.is_fenced and entry.state is not None:
                try:
                    await self._write(replace(entry, state=None, files=()), version)
                except ConflictError:  # another subtask was faster, or a newer start has taken it
                    continue
        self._has_former = False

    async def _former(self) -> list[int]:
        ours = self._entry.parallelism
        return [entry.subtask for entry, _ in (await self._entries()).values() if entry.parallelism != ours]

    async def _entries(self) -> _Stored:
        found = [(self._parsed(name, value), value.version) for name, value in (await self._store.list("")).items()]
        return {entry.subtask: (entry, version) for entry, version in found}

    async def _replace(self, entry: _Entry) -> None:
        self._version = await self._write(entry, self._version)
        self._entry = entry

    async def _write(self, entry: _Entry, version: str) -> str:
        name, content = _name(entry.subtask), msgspec.json.encode(entry)
        if not version:
            return await self._store.put_if_absent(name, content)
        return await self._store.compare_and_set(name, content, version)

    async def _drop_staged(self, subtask: int, generation: int) -> None:
        """Delete what the starts up to this generation have staged and not committed."""
        await asyncio.to_thread(
            self._staged.drop,
            _staged_folder(subtask, "*"),
            lambda name: int(name.rpartition("-")[2]) <= generation,
        )

    def _fenced(self, current: VersionedValue | None) -> FencedError:
        name, mine = _name(self._entry.subtask), self._entry.generation
        owner = None if current is None else self._parsed(name, current)
        by = (
            "a start with another parallelism" if owner is None or owner.is_fenced else f"generation {owner.generation}"
        )
        return FencedError(f"{by} owns the state of {name} in {self._store.place}; generation {mine} must stop")

    def _parsed(self, name: str, found: VersionedValue) -> _Entry:
        return read_document(found.value, _Entry, f"the stored state {name} in {self._store.place}")


async def _pause() -> None:
    await asyncio.sleep(PAUSE_SECONDS * random.random())  # noqa: S311 - jitter


def _name(subtask: int) -> str:
    return f"subtask-{subtask}"


def _staged_folder(subtask: int, generation: int | str) -> str:
    return f"staged-{subtask}-{generation}"
