"""FileLetters: dead letters in files of the jsonl or parquet sink. What is left of a file takes its place; if nothing is, it is deleted."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from recordpublisher.fetcher.stored_documents import Sequence as SequenceText
from recordpublisher.fetcher.stored_documents import read_document
from recordpublisher.plugins.sinks.files.staged_files import HIDDEN
from recordpublisher.plugins.stores.durable_files import make_folder, path_of, sync, write_file
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.properties.groups.sinks import JSONL_PATH, PARQUET_PATH
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shards import Shard

from .letters import CHUNK, DeadLetter, DeadLetters

Write = Callable[[Path, Sequence[int]], None]
"""Writes some of a file's letters, by their numbers, to another file."""


class FileLetters(DeadLetters):
    """Owns the file that is replayed, and which of its letters are left."""

    def __init__(self, suffix: str, properties: Properties) -> None:
        """A folder that is not there yet has no letters. Raises: ConfigurationError for one whose parent is not there either."""
        key = JSONL_PATH if suffix == "jsonl" else PARQUET_PATH
        folder = properties.value(key)
        if folder is None or not Path(path_of(folder, key.key)).absolute().parent.is_dir():
            raise ConfigurationError(key.key, folder, "the folder with the dead letters")
        self._folder = Path(path_of(folder, key.key))
        self._suffix = suffix

    async def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """File by file, in the order of their names."""
        for path in sorted(self._folder.rglob(f"*.{self._suffix}")):
            if HIDDEN in path.relative_to(self._folder).parts:
                continue
            letters, self._write = await asyncio.to_thread(self._read, path)
            self._path, self._left = path, set(range(len(letters)))
            for start in range(0, len(letters), CHUNK):
                yield letters[start : start + CHUNK]

    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> None:
        """Keep what is left of the file."""
        self._left -= {letter.place for letter in succeeded}
        if succeeded:
            await asyncio.to_thread(self._keep_left)

    def _read(self, path: Path) -> tuple[list[DeadLetter], Write]:
        try:
            return _read_json_lines(path) if self._suffix == "jsonl" else _read_parquet(path)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"{path} has something else than dead letters: {error!r}") from error

    def _keep_left(self) -> None:
        if self._left:
            anew = self._folder / HIDDEN / f"left-of-replay.{self._suffix}"
            make_folder(anew.parent)
            self._write(anew, sorted(self._left))
            sync(anew)
            anew.replace(self._path)
        else:
            self._path.unlink()
        sync(self._path.parent)


def _read_json_lines(path: Path) -> tuple[list[DeadLetter], Write]:
    lines = path.read_bytes().splitlines(keepends=True)

    def write(anew: Path, left: Sequence[int]) -> None:
        write_file(anew, b"".join(lines[index] for index in left))

    return [_letter_of_line(read_document(line, _Line, str(path)), index) for index, line in enumerate(lines)], write


class _Value(msgspec.Struct):
    payload: str
    error: str | None = None
    base64: bool = False


class _Line(msgspec.Struct, rename="camel"):
    """A letter as the jsonl sink writes it."""

    stream: str
    shard_id: str
    sequence_number: SequenceText
    sub_sequence_number: int
    partition_key: str | None
    approximate_arrival_timestamp: datetime
    value: _Value


def _letter_of_line(line: _Line, index: int) -> DeadLetter:
    value = line.value
    record = UserRecord(
        base64.b64decode(value.payload, validate=True) if value.base64 else value.payload.encode(),
        line.sequence_number,
        line.approximate_arrival_timestamp.timestamp(),
        line.partition_key,
        sub_sequence_number=line.sub_sequence_number,
    )
    return DeadLetter(Shard(line.stream, line.shard_id), record, value.error or "", index)


def _read_parquet(path: Path) -> tuple[list[DeadLetter], Write]:
    from pyarrow import parquet

    table = parquet.read_table(path, partitioning=None)

    def write(anew: Path, left: Sequence[int]) -> None:
        parquet.write_table(table.take(list(left)), anew)

    names = [re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", name) for name in table.column_names]
    rows = table.rename_columns(names).to_pylist()
    return [letter_of_row(row, index) for index, row in enumerate(rows)], write


def letter_of_row(row: dict[str, Any], place: Any) -> DeadLetter:
    """A letter from the columns of a record."""
    value = json.loads(row["value"]) if isinstance(row["value"], str) else row["value"]
    arrival = row["approximate_arrival_timestamp"]
    record = UserRecord(
        row["data"],
        row["sequence_number"],
        arrival.timestamp(),
        row["partition_key"],
        row["explicit_hash_key"],
        row["sub_sequence_number"],
    )
    return DeadLetter(Shard(row["stream"], row["shard_id"]), record, value["error"], place)
