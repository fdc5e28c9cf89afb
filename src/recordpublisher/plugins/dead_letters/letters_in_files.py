"""Reads and removes the dead letters in files of the jsonl or parquet sink."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

from recordpublisher.fetcher.conditional_store import unreadable_error
from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter, letter_of_line, letter_of_row
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties

from ..sinks.archived_shards import HIDDEN
from ..sinks.files.jsonl_sink import lines_of, write_lines
from ..sinks.files.sink import FileSink
from ..stores.durable_files import make_folder, path_of, sync
from .base import CHUNK, StoredLetters

CopyLetters = Callable[[Path, Sequence[int]], None]
"""Writes some of a file's letters to another file. The letters are given by their indexes in the file."""


FileContent = tuple[Sequence[Any], Callable[[Any, int], DeadLetter], CopyLetters]
"""The items of a file, a function that makes a letter of an item, and a function that writes some of the items to another file."""


class FileLetters(StoredLetters):
    """Letters in files of the jsonl or parquet sink. A replay rewrites each file with its remaining letters, or deletes it.

    A folder that does not exist yet has no letters. Raises: ConfigurationError if its parent does not exist either.
    """

    def __init__(self, sink: type[FileSink], stored_in: Callable[[Path], FileContent], properties: Properties) -> None:
        place, key = properties.value(sink.folder), sink.folder.key
        folder = None if place is None else Path(path_of(place, key))
        if folder is None or not folder.absolute().parent.is_dir():
            raise ConfigurationError(
                key,
                place,
                "the folder with the dead letters",
                reason="" if folder is None else f"{folder.absolute().parent} is not a folder",
            )
        self._folder = folder
        self._suffix = sink.suffix
        self._stored_in = stored_in

    async def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """Yield the letters of each file, in the order of the files' names."""
        for path in sorted(self._folder.rglob(f"*{self._suffix}")):
            # The folder of a shard may have a name that ends as a file does.
            if HIDDEN in path.relative_to(self._folder).parts or path.is_dir():
                continue
            # One file at a time is in memory. The replay rewrites each file under the same name, so no file is visited twice.
            try:
                letters, count, self._write = await asyncio.to_thread(self._read, path)
            except FileNotFoundError:  # Another replay has ended the file since it was listed.
                continue
            self._path, self._left = path, set(range(count))
            for start in range(0, len(letters), CHUNK):
                yield letters[start : start + CHUNK]

    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> None:
        """Rewrite the file of these letters with those that remain. Delete it if none remains."""
        self._left -= {letter.place for letter in succeeded}
        if succeeded:  # If no letter succeeded, the file stays as it is.
            await asyncio.to_thread(self._keep_left)

    def _read(self, path: Path) -> tuple[list[DeadLetter], int, CopyLetters]:
        stored, letter_of, write = self._stored_in(path)
        return self._read_letters(stored, letter_of), len(stored), write

    def _keep_left(self) -> None:
        if self._left:
            # The random name differs from that of every other replay, even of one that runs at the same time.
            rewritten = self._folder / HIDDEN / f"left-of-replay-{secrets.token_hex(8)}{self._suffix}"
            make_folder(rewritten.parent)
            try:
                self._write(rewritten, sorted(self._left))
                sync(rewritten)
                rewritten.replace(self._path)
            finally:
                rewritten.unlink(missing_ok=True)  # It is still there if the disk was full.
        else:
            self._path.unlink(missing_ok=True)  # Another replay may have ended the file, too.
        sync(self._path.parent)


def json_lines(path: Path) -> FileContent:
    """Return the content of a file of the jsonl sink."""
    lines = lines_of(path)

    def write(rewritten: Path, left: Sequence[int]) -> None:
        write_lines(b"".join(lines[index] for index in left), rewritten)

    def letter(line: bytes, index: int) -> DeadLetter:
        return letter_of_line(line, f"line {index + 1} of {path}", index)

    return lines, letter, write


def parquet_rows(path: Path) -> FileContent:
    """Return the content of a file of the parquet sink. Raises: StateError if the file is not valid Parquet."""
    from pyarrow import parquet

    try:
        table = parquet.read_table(path, partitioning=None)
    except ValueError as error:  # ArrowInvalid is a ValueError.
        raise unreadable_error(str(path), error) from error

    def write(rewritten: Path, left: Sequence[int]) -> None:
        parquet.write_table(table.take(list(left)), rewritten)

    def letter(index: int, _: int) -> DeadLetter:
        name = f"row {index + 1} of {path}"
        try:
            row = table.slice(index, 1).to_pylist()[0]
        except (ValueError, OverflowError) as error:  # For example, a time of the year 10,000 cannot be converted.
            raise unreadable_error(name, error) from error
        return letter_of_row(row, name, index)

    return range(table.num_rows), letter, write
