"""OutputFolder: files and positions become visible together, by one rename of a small file that names the others (S6)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.stores.file.snapshots import FilePositions

_HIDDEN = ".recordpublisher"


class OutputFolder:
    """Owns the folder of a file sink and, hidden inside, its positions and the files that are not yet part of it. Blocks.

    A checkpoint writes its files aside, then the subtask's positions together with the files' names (fenced: this is the commit), then
    renames the files into place. Who opens the folder after a crash finishes the renames of every commit and drops what was never
    committed: no record is missing or there twice, and nobody ever sees half a file.
    """

    def __init__(self, path: Path) -> None:
        """Raises: OSError when the folder cannot be made."""
        self._path = path
        hidden = path / _HIDDEN
        hidden.mkdir(parents=True, exist_ok=True)
        self._positions = FilePositions(hidden)
        self._generation = self._checkpoints = 0
        self._subtask, self._parallelism = 0, 1

    def open(self, subtask: int, parallelism: int) -> list[State]:
        """Take the next generation; finish what was committed; answers the positions. Earlier starts of this subtask, and all subtasks of
        a start with another parallelism, commit nothing any more."""
        self._subtask, self._parallelism = subtask, parallelism
        with self._positions.alone("opening"):
            others = [each["subtask"] for each in self._positions.load() if each["parallelism"] != parallelism]
            self._generation = self._positions.open_generation(subtask, *(each for each in others if each != subtask))
            known = self._positions.load()
            for each in known:
                self._finish(each)
            mine = next((each for each in known if each["subtask"] == subtask), {"state": None})
            self._store(mine["state"], [], is_fresh=True)
            for each in {subtask, *others}:
                self._drop_uncommitted(each)
        return [each["state"] for each in known if each["state"] is not None]

    def commit(self, contents: Mapping[str, Callable[[Path], None]], state: State) -> None:
        """Write files, given as name and what writes them, and the positions. Raises: FencedError, OSError."""
        aside = self._aside(self._generation)
        aside.mkdir(parents=True, exist_ok=True)
        self._checkpoints += 1
        files = []
        for number, (name, write) in enumerate(contents.items()):
            # a name of its own: the positions of the commit before still name that one's files
            file = aside / f"{self._checkpoints}-{number}"
            write(file)
            _sync(file)
            files.append([str(file.relative_to(self._path)), name])
        self._store(state, files)
        self._finish({"files": files})
        self._forget_other_parallelisms()

    def _store(self, state: State | None, files: list[list[str]], is_fresh: bool = False) -> None:
        entry = {"subtask": self._subtask, "parallelism": self._parallelism, "fresh": is_fresh}
        self._positions.store(self._subtask, self._generation, {**entry, "state": state, "files": files})

    def _finish(self, entry: Mapping[str, Any]) -> None:
        """Rename what is still aside; somebody else may be at it too."""
        for aside, name in entry["files"]:
            target = self._path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                (self._path / aside).replace(target)
            except FileNotFoundError:
                continue
            _sync(target.parent)

    def _drop_uncommitted(self, subtask: int) -> None:
        for folder in (self._path / _HIDDEN).glob(f"aside-{subtask}-*"):
            if int(folder.name.rpartition("-")[2]) < self._generation:
                shutil.rmtree(folder, ignore_errors=True)

    def _forget_other_parallelisms(self) -> None:
        """When every subtask of this start has committed, the entries of subtasks that are no more say nothing new."""
        ours = [each for each in self._positions.load() if each["parallelism"] == self._parallelism]
        if sum(not each["fresh"] for each in ours) == self._parallelism:
            self._positions.forget(lambda each: bool(each["parallelism"] != self._parallelism))

    def _aside(self, generation: int) -> Path:
        return self._path / _HIDDEN / f"aside-{self._subtask}-{generation}"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
