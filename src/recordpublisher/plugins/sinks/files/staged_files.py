"""Writes files into a hidden folder, and renames them when a worker's stored positions (its entry) name them."""

import asyncio
import filecmp
import hashlib
import itertools
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.sink import Leftover
from recordpublisher.plugins.stores.durable_files import exists, make_folder, sync, why_not_writable
from recordpublisher.plugins.stores.folder_store import FolderStore, folder_error
from recordpublisher.publishers.errors import StateError, StoreUnavailableError

from ..archived_shards import HIDDEN, SHARDS

STAGED, ENTRIES = "staged", "entries"
DELTA_LOG = "_delta_log"
IN_A_TABLE = "it is the folder of a table of Delta or Iceberg, and a reader of all Parquet files below it would read the rows of both"
EARLIER_FOLDERS = ("subtasks", "workers")
"""Folders in which versions before 26 November 2026 stored their positions."""
FileName = Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!(.*/)?\.\.(/|$)).+$")]
"""A path relative to the sink's folder and inside it. The pattern is checked, because another program may have stored the path."""
T = TypeVar("T")
StagedFile = tuple[FileName, FileName]
"""The hidden path of a file, and its final name."""
StagedItem = Mapping[str, Callable[[Path], None]]
"""For each file's name a function that writes the file."""


class StagedFiles:
    """Writes, renames and deletes the files of a sink's folder.

    Its methods raise StoreUnavailableError while the folder is unavailable, and StateError if a retry cannot help.
    """

    def __init__(self, folder: str) -> None:
        self.place = f"folder {Path(folder).absolute()}"
        self._path = Path(folder)
        self.entries: ConditionalStore = FolderStore(self._path / HIDDEN / ENTRIES, None)
        self.shards: ConditionalStore = FolderStore(self._path / SHARDS, None)

    async def open(self) -> None:
        """Make the folder. Raises: StateError if an earlier version has left positions there, or if the folder cannot be made."""
        hidden = self._path / HIDDEN
        await _in_thread(self._path, lambda: make_folder(hidden / STAGED))
        if found := [name for name in EARLIER_FOLDERS if any((hidden / name).glob("*"))]:
            raise StateError(
                f"{hidden / found[0]} has the positions of a job of an earlier version, which this version cannot read. 1. Stop the job. "
                "2. With the earlier version run `recordpublisher positions show JOB --json > positions.jsonl`. "
                f"3. Move {hidden / found[0]} elsewhere. "
                "4. With this version run `recordpublisher positions import JOB --from file:positions.jsonl`"
            )

    async def why_not_writable(self) -> str | None:
        """Return why this user cannot or must not write into the folder; None if writing seems possible."""
        return await asyncio.to_thread(lambda: self._why_not_here() or why_not_writable(self._path))

    def _why_not_here(self) -> str | None:
        if (self._path / DELTA_LOG).is_dir():
            return IN_A_TABLE
        return IN_A_TABLE if any((self._path / "metadata").glob("*.metadata.json")) else None

    async def stage(self, life: str, number: int, files: StagedItem) -> tuple[list[StagedFile], int]:
        """Write the files into the hidden folder. Return the hidden path and the name of each file, and the bytes of all files.

        The hidden paths are unique: they contain `life`, the name of this run of the worker, and `number`, the number of the commit.

        Raises: StateError if a file cannot be written; StoreUnavailableError if the folder of this run is gone. A process that replaces
        this one deletes the folder.
        """
        try:
            return await _in_thread(self._path, lambda: self._stage(life, number, files))
        except StateError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise StoreUnavailableError(str(error)) from error
            raise

    async def publish(self, files: Iterable[StagedFile]) -> list[StagedFile]:
        """Rename the files that are still hidden. Return the files that exist under neither their hidden path nor their final name.

        Another process may do the same at the same time.
        """
        return await _in_thread(self._path, lambda: self._publish(files))

    async def discard(self, has_ended: Callable[[str], bool], kept: Collection[str]) -> None:
        """Delete the hidden files of worker runs that have ended, except `kept`."""
        await _in_thread(self._path, lambda: self._discard(has_ended, kept))

    async def leftovers(self, kept: Collection[str]) -> list[Leftover]:
        """Return the hidden files of all runs, except `kept`."""
        return await _in_thread(self._path, lambda: self._leftovers(kept))

    async def remove(self, leftovers: Iterable[Leftover]) -> None:
        """Delete the leftovers. Some may be gone already."""
        await _in_thread(self._path, lambda: self._remove(leftovers))

    def _stage(self, life: str, number: int, files: StagedItem) -> tuple[list[StagedFile], int]:
        staged = self._path / HIDDEN / STAGED / life
        make_folder(staged)
        written: list[StagedFile] = []
        size = 0
        for index, (name, write) in enumerate(files.items()):
            file = staged / f"{number}-{index}"
            file.touch(exist_ok=False)
            write(file)
            # The files and their folder must be durable before an entry commits them, even if the machine then loses power.
            sync(file)
            size += file.stat().st_size
            written.append((str(file.relative_to(self._path)), name))
        sync(staged)
        return written, size

    def _publish(self, files: Iterable[StagedFile]) -> list[StagedFile]:
        missing: list[StagedFile] = []
        for staged, name in files:
            hidden, target = self._path / staged, self._path / name
            others = (self._path / name_after_clash(staged + "+" * n, name) for n in itertools.count())
            try:
                if exists(hidden):
                    make_folder(target.parent)
                    _give_name(hidden, target, others)
                    continue
            except FileNotFoundError as error:
                if exists(hidden):  # Otherwise another process has renamed it.
                    raise StoreUnavailableError(f"{target.parent} was removed while {hidden} was renamed") from error
            except OSError as error:
                way = (
                    f"; {hidden} is committed, and each start publishes it first. If it can never be published, move it away and keep it: "
                    "it has the records"
                )
                raise folder_error(self._path, error, way) from error
            if not exists(target):
                missing.append((staged, name))
        return missing

    def _leftovers(self, kept: Collection[str]) -> list[Leftover]:
        found: list[Leftover] = []
        for file in (self._path / HIDDEN / STAGED).glob("*/*"):
            name = str(file.relative_to(self._path))
            if name not in kept:
                with suppress(FileNotFoundError):  # another process has published it since it was listed
                    stat = file.stat()
                    found.append(Leftover(name, stat.st_size, stat.st_mtime, file.parent.name))
        return found

    def _remove(self, leftovers: Iterable[Leftover]) -> None:
        for left in leftovers:
            (self._path / left.name).unlink(missing_ok=True)

    def _discard(self, has_ended: Callable[[str], bool], kept: Collection[str]) -> None:
        ended = [folder for folder in (self._path / HIDDEN / STAGED).glob("*") if has_ended(folder.name)]
        lives = {folder.name for folder in ended}
        self._remove(left for left in self._leftovers(kept) if left.life in lives)
        for folder in ended:
            if not any(folder.glob("*")):
                shutil.rmtree(folder, ignore_errors=True)


def name_after_clash(staged: str, name: str) -> str:
    """Return another name for the file `staged`, because `name` is taken by a file with other content, as after a reset of positions."""
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}.{hashlib.sha256(staged.encode()).hexdigest()[:12]}{dot}{suffix}"


def _give_name(hidden: Path, target: Path, others: Iterator[Path]) -> None:
    """Rename a file to `target`, or to the next name of `others` if there is a file `target` with other content.

    Raises: OSError if the file cannot be renamed.
    """
    if exists(target) and not (target.samefile(hidden) or filecmp.cmp(hidden, target, shallow=False)):
        return _give_name(hidden, next(others), others)
    try:
        os.link(hidden, target)  # Unlike a rename, a link never replaces a file that another process has just made.
    except FileExistsError:
        if not (target.samefile(hidden) or filecmp.cmp(hidden, target, shallow=False)):
            return _give_name(hidden, next(others), others)
    except FileNotFoundError:
        raise
    except OSError:  # The file system has no links.
        hidden.replace(target)
    sync(target.parent)
    hidden.unlink(missing_ok=True)


async def _in_thread(folder: Path, work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise folder_error(folder, error) from error
