"""OutputFolder: commits files and positions together, by one rename of a small file that lists the others (S6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recordpublisher.fetcher.sink import State

from .positions import FilePositions
from .staged_files import HIDDEN, Files, StagedFiles


class OutputFolder:
    """Owns the folder of a file sink and a hidden folder in it with the positions and the staged files. Its methods block.

    A checkpoint writes staged files, then commits: it stores the subtask's positions together with the files' names, fenced by
    generation. Then it renames the files into place. After a crash, `open` finishes the renames of every commit and deletes staged files
    that were never committed. So no record is missing or duplicated, and no reader sees an incomplete file.
    """

    def __init__(self, path: Path) -> None:
        """Raises: OSError when the folder cannot be created."""
        self._staged = StagedFiles(path)
        hidden = path / HIDDEN
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
                self._staged.finish(each["files"])
            mine = next((each for each in known if each["subtask"] == subtask), {"state": None})
            self._store(mine["state"], [], is_fresh=True)
            for each in {subtask, *others}:
                self._drop_uncommitted(each)
        return _states(known)

    def commit(self, contents: Files, state: State) -> None:
        """Write files and the positions. Raises: FencedError, OSError."""
        self._checkpoints += 1
        files = self._staged.stage(f"staged-{self._subtask}-{self._generation}", self._checkpoints, contents)
        self._store(state, files)
        self._staged.finish(files)
        self._forget_other_parallelisms()

    def _store(self, state: State | None, files: Sequence[Sequence[str]], is_fresh: bool = False) -> None:
        entry = {"subtask": self._subtask, "parallelism": self._parallelism, "fresh": is_fresh}
        self._positions.store(self._subtask, self._generation, {**entry, "state": state, "files": files})

    def _drop_uncommitted(self, subtask: int) -> None:
        self._staged.drop(f"staged-{subtask}-*", lambda name: int(name.rpartition("-")[2]) < self._generation)

    def _forget_other_parallelisms(self) -> None:
        """Delete the entries of other parallelisms once every subtask of this start has committed: they are superseded."""
        ours = [each for each in self._positions.load() if each["parallelism"] == self._parallelism]
        if sum(not each["fresh"] for each in ours) == self._parallelism:
            self._positions.forget(lambda each: bool(each["parallelism"] != self._parallelism))


def stored_states(path: Path) -> list[State]:
    """The positions in a sink's folder, for a reader, who creates and locks nothing. Raises: StateError."""
    return _states(FilePositions(path / HIDDEN).load())


def _states(entries: Iterable[Mapping[str, Any]]) -> list[State]:
    return [each["state"] for each in entries if each["state"] is not None]
