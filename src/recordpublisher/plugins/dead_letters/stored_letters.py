"""StoredLetters: the letters of a job, in the place where its dead-letter sink has written them (S7)."""

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
"""Letters that cannot be read, each with a line of its own."""
Failures = Mapping[tuple[str, str, int], str]
"""Why letters failed, by `DeadLetter.key`."""
CHUNK = 1000
"""Letters that are replayed together: what a kill may repeat."""


class StoredLetters(ABC):
    """A place with dead letters. Owns its connections, and how many of the letters could not be read: those are kept."""

    unreadable = 0

    @abstractmethod
    def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """The letters, some at a time. With `is_replay`, `finish` follows each chunk."""

    @abstractmethod
    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> Failures | None:
        """Keep only the letters of a chunk that failed. Durable when this returns. Return which of `succeeded` are kept all the same."""

    def _readable(self, stored: Iterable[T], letter_of: Callable[[T, int], DeadLetter]) -> list[DeadLetter]:
        """Of what is stored, the letters that can be read; `letter_of` is given the number too, and raises StateError for the others."""
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
    """Put the original records to the tip of a stream, with their keys. Raises: SinkError."""
    for letter in letters:
        record = letter.record
        hash_key = written_hash_key(record.explicit_hash_key)
        await sink.put(record.data, record.partition_key or record.sequence_number, hash_key)
