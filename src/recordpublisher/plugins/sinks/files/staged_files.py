"""StagedFiles: files that are written in a hidden folder, and renamed into place when an entry has committed them (S6)."""

import asyncio
import filecmp
import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from recordpublisher.fetcher.committing_sink import Leftover
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.plugins.stores.durable_files import make_folder, sync, why_not_writable
from recordpublisher.plugins.stores.folder_store import FolderStore, folder_error
from recordpublisher.publishers.errors import StateError, StoreUnavailableError

HIDDEN = ".recordpublisher"
STAGED, ENTRIES = "staged", "entries"
EARLIER = ("subtasks", "workers")
"""Where versions before 26 November 2026 had their positions."""
FileName = Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!(.*/)?\.\.(/|$)).+$")]
"""Relative to the sink's folder, and within it: an entry may be somebody else's."""
T = TypeVar("T")
StagedFile = tuple[FileName, FileName]
"""Where a file is, and its name."""
Files = Mapping[str, Callable[[Path], None]]
"""A function that writes the file, by the file's name."""


class StagedFiles:
    """The files of a sink's folder, and the entries that commit them. Owns nothing.

    Raises: StoreUnavailableError while the folder is away, StateError when waiting does not help.
    """

    def __init__(self, folder: str) -> None:
        self.place = f"folder {Path(folder).absolute()}"
        self._path = Path(folder)
        self.entries: ConditionalStore = FolderStore(self._path / HIDDEN / ENTRIES, None)

    async def open(self) -> None:
        """Make the folder. Raises: StateError also when an earlier version has left positions there."""
        hidden = self._path / HIDDEN
        await _in_thread(self._path, lambda: make_folder(hidden / STAGED))
        if found := [name for name in EARLIER if any((hidden / name).glob("*"))]:
            raise StateError(
                f"{hidden / found[0]} has the positions of a job of an earlier version, which this one does not read. With that version "
                "stop the job, and write them into a file: `recordpublisher positions show JOB --json > positions.jsonl`. Move the folder "
                "away, then `recordpublisher positions import JOB --from file:positions.jsonl` stores them here"
            )

    async def why_not_writable(self) -> str | None:
        """Why this user cannot write there; None: it seems possible."""
        return await asyncio.to_thread(why_not_writable, self._path)

    async def stage(self, life: str, number: int, files: Files) -> tuple[list[StagedFile], int]:
        """Write files, and return where each one is and its name; and their bytes. The names of staged files are unique.

        Raises: StoreUnavailableError also when the folder went away meanwhile: whoever has replaced this life has deleted it, as the next
        commit will find out.
        """
        try:
            return await _in_thread(self._path, lambda: self._stage(life, number, files))
        except StateError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise StoreUnavailableError(str(error)) from error
            raise

    async def publish(self, files: Iterable[StagedFile]) -> list[StagedFile]:
        """Rename the files that are still staged; another process may do the same meanwhile. Returns those that have neither name."""
        return await _in_thread(self._path, lambda: self._publish(files))

    async def discard(self, has_ended: Callable[[str], bool], kept: Collection[str]) -> None:
        """Delete what these lives have staged, but for `kept`."""
        await _in_thread(self._path, lambda: self._discard(has_ended, kept))

    async def leftovers(self, kept: Collection[str]) -> list[Leftover]:
        """What any life has staged, but for `kept`."""
        return await _in_thread(self._path, lambda: self._leftovers(kept))

    async def remove(self, leftovers: Iterable[Leftover]) -> None:
        """Delete them."""
        await _in_thread(self._path, lambda: self._remove(leftovers))

    def _stage(self, life: str, number: int, files: Files) -> tuple[list[StagedFile], int]:
        staged = self._path / HIDDEN / STAGED / life
        make_folder(staged)
        written: list[StagedFile] = []
        size = 0
        for index, (name, write) in enumerate(files.items()):
            file = staged / f"{number}-{index}"
            file.touch(exist_ok=False)
            write(file)
            sync(file)
            size += file.stat().st_size
            written.append((str(file.relative_to(self._path)), name))
        sync(staged)
        return written, size

    def _publish(self, files: Iterable[StagedFile]) -> list[StagedFile]:
        missing: list[StagedFile] = []
        for staged, name in files:
            hidden, target = self._path / staged, self._path / name
            try:
                if hidden.exists():
                    make_folder(target.parent)
                    _give_name(hidden, target, self._path / other_name(staged, name))
                    continue
            except FileNotFoundError:  # another process has renamed it
                pass
            except OSError as error:
                way = f"; it is committed, and each start publishes it first. If it never can be, move {hidden} away: it has the records"
                raise folder_error(self._path, error, way) from error
            if not os.path.exists(target):  # False also for a name that is too long
                missing.append((staged, name))
        return missing

    def _leftovers(self, kept: Collection[str]) -> list[Leftover]:
        found: list[Leftover] = []
        for file in (self._path / HIDDEN / STAGED).glob("*/*"):
            name = str(file.relative_to(self._path))
            if name not in kept:
                with suppress(FileNotFoundError):  # it is published meanwhile
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


def other_name(staged: str, name: str) -> str:
    """Return the name of a staged file whose own name another file has: as for rows of other positions that were read here."""
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}.{hashlib.sha256(staged.encode()).hexdigest()[:12]}{dot}{suffix}"


def _give_name(hidden: Path, target: Path, other: Path) -> None:
    """Rename a file; a file that has the name stays, and if its content differs, the file gets the other name. Raises: OSError."""
    if target.exists() and not (target.samefile(hidden) or filecmp.cmp(hidden, target, shallow=False)):
        return _give_name(hidden, other, other)
    try:
        os.link(hidden, target)  # unlike a rename it replaces no file that was made meanwhile
    except FileExistsError:
        if not (target.samefile(hidden) or filecmp.cmp(hidden, target, shallow=False)):
            return _give_name(hidden, other, other)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without links
        hidden.replace(target)
    sync(target.parent)
    hidden.unlink(missing_ok=True)


async def _in_thread(folder: Path, work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise folder_error(folder, error) from error
