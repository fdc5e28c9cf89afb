"""FileStateStore: checkpoints in a folder, fenced by generation under a file lock (S6)."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ...fetcher.sink import State
from ...fetcher.state_store import StateStore
from ...publishers.errors import ConfigurationError, FencedError, StateError
from ...publishers.properties import Properties
from ...publishers.property_table import STATE_URI


class FileStateStore(StateStore):
    """One JSON file for each subtask, replaced as a whole, and one that says which generation each subtask is of.

    Every start takes a number higher than all before it; a subtask stores only while no later start of it has taken one. The lock
    makes check and replacement one step for processes that share the folder's file system.
    """

    def __init__(self, folder: Path | str | Properties) -> None:
        """`folder` is made when missing; with properties it is `flink.state.uri`, a path or file:// URI. Raises: ConfigurationError."""
        self._folder = _folder_of(folder) if isinstance(folder, Properties) else Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                STATE_URI.key, str(self._folder), "a folder that can be written", reason=str(error)
            ) from error

    async def load(self) -> list[State]:
        """Every subtask's snapshot. Raises: StateError naming the file that cannot be read."""
        return await asyncio.to_thread(lambda: [_read(path) for path in sorted(self._folder.glob("subtask-*.json"))])

    async def open_generation(self, subtask: int) -> int:
        """The next number; later stores of this subtask's earlier starts raise FencedError."""
        return await asyncio.to_thread(self._open_generation, subtask)

    async def store(self, subtask: int, generation: int, state: State) -> None:
        """Replace the subtask's snapshot. Raises: FencedError when a later start of the subtask owns it."""
        await asyncio.to_thread(self._store, subtask, generation, state)

    def _open_generation(self, subtask: int) -> int:
        with self._locked():
            known = self._generations()
            generation = known["last"] + 1
            known["subtasks"][str(subtask)] = known["last"] = generation
            _replace(self._folder / "generations.json", known)
            return int(generation)

    def _store(self, subtask: int, generation: int, state: State) -> None:
        with self._locked():
            owner = self._generations()["subtasks"].get(str(subtask))
            if owner != generation:
                raise FencedError(
                    f"generation {owner} of subtask {subtask} owns the state in {self._folder}; generation {generation} must stop"
                )
            _replace(self._folder / f"subtask-{subtask}.json", dict(state))

    def _generations(self) -> dict[str, Any]:
        path = self._folder / "generations.json"
        return _read(path) if path.exists() else {"last": 0, "subtasks": {}}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _folder_of(properties: Properties) -> Path:
    uri = properties.value(STATE_URI)
    parsed = urlparse(uri or "")
    if not uri or parsed.scheme not in ("", "file"):
        raise ConfigurationError(STATE_URI.key, uri, "a path or a file:// URI")
    return Path(parsed.path)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StateError(f"the stored state {path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise StateError(f"the stored state {path} is not a JSON object")
    return content


def _replace(path: Path, content: dict[str, Any]) -> None:
    """Write beside and rename, so that a reader or a crash sees the old content or the new."""
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
