"""The port through which stored dead letters are read, and removed once they were replayed.

Each place has a file: `letters_in_files.py`, `letters_in_table.py`, `letters_in_stream.py` and `letters_in_queue.py`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
from recordpublisher.publishers.errors import StateError

log = logging.getLogger(__name__)
T = TypeVar("T")


MOST_LOGGED = 20
"""Most unreadable dead letters that are logged with a line of their own."""


Failures = Mapping[tuple[str, str, int], str]
"""The reason why each dead letter failed, by `DeadLetter.key`."""


CHUNK = 1000
"""Number of dead letters that are replayed together. After a kill, at most this many are replayed twice."""


class StoredLetters(ABC):
    """Reads and removes stored dead letters (here called letters). Letters that cannot be read are kept, and counted in `unreadable`."""

    unreadable = 0

    @abstractmethod
    def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """Yield the letters in chunks. With `is_replay`, the caller calls `finish` after each chunk."""

    @abstractmethod
    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> Failures | None:
        """Remove the letters of a chunk that succeeded, and keep those that failed. The change is durable when the call returns.

        Return the letters of `succeeded` that could not be removed, each with the reason. None if all were removed.
        """

    def _read_letters(self, stored: Iterable[T], letter_of: Callable[[T, int], DeadLetter]) -> list[DeadLetter]:
        """Read the stored letters, and return those that can be read. The others are counted and logged.

        - `letter_of`: makes a letter of an item of `stored` and its index. Raises StateError if the item cannot be read.
        """
        letters = []
        for index, each in enumerate(stored):
            try:
                letters.append(letter_of(each, index))
            except StateError as error:
                if self.unreadable < MOST_LOGGED:
                    log.warning("a dead letter cannot be read, so it is not replayed, and is kept: %s", error)
                self.unreadable += 1
        return letters

    async def close(self) -> None:  # noqa: B027 - files have nothing to close
        """Release the connections."""
