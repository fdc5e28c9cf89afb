"""StoredLetters: the letters of a job, in the place where its dead-letter sink has written them (S7)."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.properties.groups.bad_records import DEAD_LETTER_SINK
from recordpublisher.publishers.properties.properties import Properties

if TYPE_CHECKING:
    from recordpublisher.plugins.sinks.kinesis import KinesisSink

log = logging.getLogger(__name__)
T = TypeVar("T")
MOST_LOGGED = 20
"""Letters that cannot be read, each with a line of its own."""
CHUNK = 1000
"""Letters that are replayed together: what a kill may repeat."""


class StoredLetters(ABC):
    """A place with dead letters. Owns its connections, and how many of the letters could not be read: those are kept."""

    unreadable = 0

    @abstractmethod
    def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """The letters, some at a time. With `is_replay`, `finish` follows each chunk."""

    @abstractmethod
    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> None:
        """A chunk was replayed: keep only what failed. Durable when this returns."""

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
        await sink.put(record.data, record.partition_key or record.sequence_number, record.explicit_hash_key)


def stored_letters_of(properties: Properties) -> StoredLetters:
    """Where a job's dead letters are. Raises: ConfigurationError for a sink whose letters cannot be read."""
    from recordpublisher.plugins.host.build_from_properties import dead_letter_properties

    name, of_sink = (properties.value(DEAD_LETTER_SINK) or "").lower(), dead_letter_properties(properties)
    if name == "jsonl":
        from recordpublisher.plugins.sinks.files.jsonl import JsonlSink

        from .files import FileLetters, json_lines

        return FileLetters(JsonlSink, json_lines, of_sink)
    if name == "parquet":
        from recordpublisher.plugins.sinks.files.parquet import ParquetSink

        from .files import FileLetters, parquet_rows

        return FileLetters(ParquetSink, parquet_rows, of_sink)
    if name == "sql":
        from .table import TableLetters

        return TableLetters(of_sink)
    if name == "kinesis":
        from .stream import StreamLetters

        return StreamLetters(of_sink)
    raise ConfigurationError(DEAD_LETTER_SINK.key, properties.value(DEAD_LETTER_SINK), "jsonl, parquet, sql or kinesis")
