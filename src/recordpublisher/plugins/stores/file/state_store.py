"""FileStateStore: checkpoints in a folder, fenced by generation under a file lock (S6)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import unquote, urlsplit

from recordpublisher.fetcher.checkpoints.store import StateStore
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties, mask_passwords
from recordpublisher.publishers.properties.table import STATE_URI

from .snapshots import FilePositions


class FileStateStore(StateStore):
    """One JSON file for each subtask, replaced as a whole, and one that says which generation each subtask is of.

    Every start takes a number higher than all before it; a subtask stores only while no later start of it has taken one. The lock
    makes check and replacement one step for processes that share the folder's file system.
    """

    def __init__(self, folder: Path | str | Properties) -> None:
        """`folder` is made when missing; with properties it is `flink.state.uri`, a path or file:// URI. Raises: ConfigurationError."""
        place = _folder_of(folder) if isinstance(folder, Properties) else Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                STATE_URI.key, str(place), "a folder that can be written", reason=str(error)
            ) from error
        self._positions = FilePositions(place)

    async def load(self) -> list[State]:
        """Every subtask's snapshot. Raises: StateError naming the file that cannot be read."""
        return list(await asyncio.to_thread(self._positions.load))

    async def open_generation(self, subtask: int) -> int:
        """The next number; later stores of this subtask's earlier starts raise FencedError."""
        return await asyncio.to_thread(self._positions.open_generation, subtask)

    async def store(self, subtask: int, generation: int, state: State) -> None:
        """Replace the subtask's snapshot. Raises: FencedError when a later start of the subtask owns it."""
        await asyncio.to_thread(self._positions.store, subtask, generation, state)


def _folder_of(properties: Properties) -> Path:
    uri = properties.value(STATE_URI)
    parsed = urlsplit(uri or "")
    if not uri or parsed.scheme not in ("", "file"):
        raise ConfigurationError(STATE_URI.key, uri and mask_passwords(uri), "a path or a file:// URI")
    return Path(unquote(parsed.path))
