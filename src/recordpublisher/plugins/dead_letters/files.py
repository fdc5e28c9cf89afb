"""Reads dead letters from files of the jsonl or parquet sink. A replay rewrites each file with its remaining letters, or deletes it."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter, letter_of_line, letter_of_row
from recordpublisher.fetcher.stored_documents import unreadable
from recordpublisher.plugins.sinks.files.jsonl import lines_of, write_lines
from recordpublisher.plugins.sinks.files.sink import FileSink
from recordpublisher.plugins.sinks.files.staged_files import HIDDEN
from recordpublisher.plugins.stores.durable_files import make_folder, path_of, sync
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties

from .stored_letters import CHUNK, StoredLetters

Write = Callable[[Path, Sequence[int]], None]
"""Writes some of a file's letters, given by their numbers, to another file."""
Stored = tuple[Sequence[Any], Callable[[Any, int], DeadLetter], Write]
"""The content of a file, a function that makes a letter of an item, and a function that writes some of the items."""


class FileLetters(StoredLetters):
    """Owns the file that is being replayed, and the numbers of its remaining letters.

    A folder that does not exist yet has no letters. Raises: ConfigurationError if its parent does not exist either.
    """

    def __init__(self, sink: type[FileSink], stored_in: Callable[[Path], Stored], properties: Properties) -> None:
        place, key = properties.value(sink.folder), sink.folder.key
        folder = None if place is None else Path(path_of(place, key))
        if folder is None or not folder.absolute().parent.is_dir():
            raise ConfigurationError(key, place, "the folder with the dead letters")
        self._folder = folder
        self._suffix = sink.suffix
        self._stored_in = stored_in

    async def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """Yield the letters of each file, in the order of the files' names."""
        for path in sorted(self._folder.rglob(f"*{self._suffix}")):
            if HIDDEN in path.relative_to(self._folder).parts:
                continue
            letters, count, self._write = await asyncio.to_thread(self._read, path)
            self._path, self._left = path, set(range(count))
            for start in range(0, len(letters), CHUNK):
                yield letters[start : start + CHUNK]

    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> None:
        """Keep the remaining letters of the file."""
        self._left -= {letter.place for letter in succeeded}
        if succeeded:
            await asyncio.to_thread(self._keep_left)

    def _read(self, path: Path) -> tuple[list[DeadLetter], int, Write]:
        stored, letter_of, write = self._stored_in(path)
        return self._readable(stored, letter_of), len(stored), write

    def _keep_left(self) -> None:
        if self._left:
            # A name that no other replay has.
            anew = self._folder / HIDDEN / f"left-of-replay-{secrets.token_hex(8)}{self._suffix}"
            make_folder(anew.parent)
            self._write(anew, sorted(self._left))
            sync(anew)
            anew.replace(self._path)
        else:
            self._path.unlink()
        sync(self._path.parent)


def json_lines(path: Path) -> Stored:
    """Return the content of a file of the jsonl sink."""
    lines = lines_of(path)

    def write(anew: Path, left: Sequence[int]) -> None:
        write_lines(b"".join(lines[index] for index in left), anew)

    def letter(line: bytes, index: int) -> DeadLetter:
        return letter_of_line(line, f"line {index + 1} of {path}", index)

    return lines, letter, write


def parquet_rows(path: Path) -> Stored:
    """Return the content of a file of the parquet sink. Raises: StateError if the file is not valid Parquet."""
    from pyarrow import parquet

    try:
        table = parquet.read_table(path, partitioning=None)
    except ValueError as error:  # ArrowInvalid is a ValueError.
        raise unreadable(str(path), error) from error

    def write(anew: Path, left: Sequence[int]) -> None:
        parquet.write_table(table.take(list(left)), anew)

    def letter(index: int, _: int) -> DeadLetter:
        name = f"row {index + 1} of {path}"
        try:
            row = table.slice(index, 1).to_pylist()[0]
        except (ValueError, OverflowError) as error:  # For example, a time of the year 10,000 cannot be converted.
            raise unreadable(name, error) from error
        return letter_of_row(row, name, index)

    return range(table.num_rows), letter, write
