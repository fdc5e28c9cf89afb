"""FilePositions: JSON files in a folder, one for each subtask, which only the newest generation of the subtask may replace (S6)."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recordpublisher.plugins.stores.durable_files import replace_file
from recordpublisher.publishers.errors import FencedError, StateError

Content = Mapping[str, Any]


class FilePositions:
    """Owns `subtask-N.json` and `generations.json`, under a lock for all processes that share the file system. Its methods block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self) -> list[dict[str, Any]]:
        """Every subtask's content. Raises: StateError naming the file that cannot be read."""
        return [_read(path) for path in sorted(self.folder.glob("subtask-*.json"))]

    def open_generation(self, *subtasks: int) -> int:
        """Take the next generation, for one subtask or several."""
        with self._locked():
            known = self._generations()
            generation = known["last"] + 1
            known["last"] = generation
            known["subtasks"].update({str(subtask): generation for subtask in subtasks})
            replace_file(self.folder / "generations.json", json.dumps(known).encode())
            return int(generation)

    def store(self, subtask: int, generation: int, content: Content) -> None:
        """Replace the subtask's content. Raises: FencedError when a later start of the subtask owns it."""
        with self._locked():
            owner = self._generations()["subtasks"].get(str(subtask))
            if owner != generation:
                raise FencedError(
                    f"generation {owner} of subtask {subtask} owns the state in {self.folder}; generation {generation} must stop"
                )
            replace_file(self.folder / f"subtask-{subtask}.json", json.dumps(content).encode())

    def forget(self, is_obsolete: Callable[[Content], bool]) -> None:
        """Delete the contents for which this is true."""
        with self._locked():
            for path in self.folder.glob("subtask-*.json"):
                if is_obsolete(_read(path)):
                    path.unlink()

    @contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        """A lock: only one process at a time is inside a block of this name."""
        with (self.folder / name).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _generations(self) -> dict[str, Any]:
        path = self.folder / "generations.json"
        return _read(path) if path.exists() else {"last": 0, "subtasks": {}}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self.exclusive("lock"):
            yield


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StateError(f"the stored state {path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise StateError(f"the stored state {path} is not a JSON object")
    return content
