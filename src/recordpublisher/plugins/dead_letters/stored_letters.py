"""The interface of a place where a job's dead-letter sink has written letters (S7)."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.shards import written_hash_key

if TYPE_CHECKING:
    from recordpublisher.plugins.sinks.kinesis import KinesisSink

log = logging.getLogger(__name__)
T = TypeVar("T")
MOST_LOGGED = 20
"""Number of unreadable letters that are logged with a line of their own."""
Failures = Mapping[tuple[str, str, int], str]
"""Why letters failed, by `DeadLetter.key`."""
CHUNK = 1000
"""Number of letters that are replayed together. A kill may repeat this many."""


class StoredLetters(ABC):
    """A place with dead letters. Owns its connections, and counts the letters that cannot be read, which are kept."""

    unreadable = 0

    @abstractmethod
    def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """Yield the letters, some at a time. With `is_replay`, the caller calls `finish` after each chunk."""

    @abstractmethod
    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> Failures | None:
        """Keep only the failed letters of a chunk. This is durable when the call returns.

        Return which of `succeeded` are kept all the same, with the reason.
        """

    def _readable(self, stored: Iterable[T], letter_of: Callable[[T, int], DeadLetter]) -> list[DeadLetter]:
        """Return the letters that can be read. Count and log the others.

        - `letter_of`: makes a letter of an item and its number. It raises StateError if the item cannot be read.
        """
        letters = []
        for index, each in enumerate(stored):
            try:
                letters.append(letter_of(each, index))
            except StateError as error:
                if self.unreadable < MOST_LOGGED:
                    log.warning("a dead letter is kept as it is: %s", error)
                self.unreadable += 1
        return letters

    async def close(self) -> None:  # noqa: B027 - files have nothing to close
        """Release the connections."""


async def put_letters(sink: KinesisSink, letters: Iterable[DeadLetter]) -> None:
    """Put the original records to the tip of a stream, with their keys. Raises: SinkError if a record cannot be put."""
    for letter in letters:
        record = letter.record
        hash_key = written_hash_key(record.explicit_hash_key)
        await sink.put(record.data, record.partition_key or record.sequence_number, hash_key)
