"""OutputFolder: commits files and positions together, by one rename of a small file that lists the others (S6)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.stores.durable_files import make_folder, sync

from .positions import FilePositions

_HIDDEN = ".recordpublisher"


class OutputFolder:
    """Owns the folder of a file sink and a hidden folder in it with the positions and the staged files. Its methods block.

    A checkpoint writes staged files, then commits: it stores the subtask's positions together with the files' names, fenced by
    generation. Then it renames the files into place. After a crash, `open` finishes the renames of every commit and deletes staged files
    that were never committed. So no record is missing or duplicated, and no reader sees an incomplete file.
    """

    def __init__(self, path: Path) -> None:
        """Raises: OSError when the folder cannot be created."""
        self._path = path
        hidden = path / _HIDDEN
        hidden.mkdir(parents=True, exist_ok=True)
        self._positions = FilePositions(hidden)
        self._generation = self._checkpoints = 0
        self._subtask, self._parallelism = 0, 1

    def open(self, subtask: int, parallelism: int) -> list[State]:
        """Take the next generation, finish committed renames and return the positions. From now on earlier starts of this subtask, and
        all subtasks of a start with another parallelism, are fenced off."""
        self._subtask, self._parallelism = subtask, parallelism
        with self._positions.exclusive("opening"):
            others = [each["subtask"] for each in self._positions.load() if each["parallelism"] != parallelism]
            self._generation = self._positions.open_generation(subtask, *(each for each in others if each != subtask))
            known = self._positions.load()
            for each in known:
                self._finish(each)
            mine = next((each for each in known if each["subtask"] == subtask), {"state": None})
            self._store(mine["state"], [], is_fresh=True)
            for each in {subtask, *others}:
                self._drop_uncommitted(each)
        return _states(known)

    def commit(self, contents: Mapping[str, Callable[[Path], None]], state: State) -> None:
        """Write files, given as names and functions that write them, and the positions. Raises: FencedError, OSError."""
        staged = self._staging_folder(self._generation)
        make_folder(staged)
        self._checkpoints += 1
        files = []
        for number, (name, write) in enumerate(contents.items()):
            # unique names: the stored positions still name the staged files of the previous commit
            file = staged / f"{self._checkpoints}-{number}"
            write(file)
            sync(file)
            files.append([str(file.relative_to(self._path)), name])
        sync(staged)
        self._store(state, files)
        self._finish({"files": files})
        self._forget_other_parallelisms()

    def _store(self, state: State | None, files: list[list[str]], is_fresh: bool = False) -> None:
        entry = {"subtask": self._subtask, "parallelism": self._parallelism, "fresh": is_fresh}
        self._positions.store(self._subtask, self._generation, {**entry, "state": state, "files": files})

    def _finish(self, entry: Mapping[str, Any]) -> None:
        """Rename the files that are still staged; another process may do the same concurrently."""
        for staged, name in entry["files"]:
            target = self._path / name
            make_folder(target.parent)
            try:
                (self._path / staged).replace(target)
            except FileNotFoundError:
                continue
            sync(target.parent)

    def _drop_uncommitted(self, subtask: int) -> None:
        for folder in (self._path / _HIDDEN).glob(f"staged-{subtask}-*"):
            if int(folder.name.rpartition("-")[2]) < self._generation:
                shutil.rmtree(folder, ignore_errors=True)

    def _forget_other_parallelisms(self) -> None:
        """Delete the entries of other parallelisms once every subtask of this start has committed: they are superseded."""
        ours = [each for each in self._positions.load() if each["parallelism"] == self._parallelism]
        if sum(not each["fresh"] for each in ours) == self._parallelism:
            self._positions.forget(lambda each: bool(each["parallelism"] != self._parallelism))

    def _staging_folder(self, generation: int) -> Path:
        return self._path / _HIDDEN / f"staged-{self._subtask}-{generation}"


def stored_states(path: Path) -> list[State]:
    """The positions in a sink's folder, for a reader, who creates and locks nothing. Raises: StateError."""
    return _states(FilePositions(path / _HIDDEN).load())


def _states(entries: Iterable[Mapping[str, Any]]) -> list[State]:
    return [each["state"] for each in entries if each["state"] is not None]
