"""Reads the dead letters of a job from the files or the stream into which its dead-letter sink has written them."""

from __future__ import annotations

import asyncio
import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from recordpublisher.fetcher.conditional_store import unreadable_error
from recordpublisher.fetcher.pipeline.dead_letters import DeadLetter, letter_of_line, letter_of_row
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.properties.job_properties import CHECKPOINT_INTERVAL, JOB_NAME, STATE_URI
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import LIST_SHARDS_RETRIES
from recordpublisher.publishers.properties.sink_properties import SINK_STREAM
from recordpublisher.publishers.retry import call_with_retries
from recordpublisher.publishers.shards import canonical_hash_key

from ..host.build_from_properties import build_store
from ..host.manager import load_registry
from ..lag.job_state import JobStateReader
from ..runtime.streaming import stream
from ..sinks.archived_shards import HIDDEN
from ..sinks.files.jsonl import lines_of, write_lines
from ..sinks.files.sink import FileSink
from ..sinks.kinesis import KinesisSink
from ..stores.back_ends import back_end_of
from ..stores.by_location import missing_folder
from ..stores.durable_files import make_folder, path_of, sync

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

        Return the letters of `succeeded` that could not be removed, each with the reason.
        """

    def _read_letters(self, stored: Iterable[T], letter_of: Callable[[T, int], DeadLetter]) -> list[DeadLetter]:
        """Return the letters that can be read. Count and log unreadable ones.

        - `letter_of`: makes a letter of an item and its number, or raises StateError if the item cannot be read.
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


async def put_letters(sink: KinesisSink, letters: Iterable[DeadLetter]) -> None:
    """Put the original records of dead letters into a stream, with their keys. Raises: SinkError if a record cannot be put."""
    for letter in letters:
        record = letter.record
        hash_key = canonical_hash_key(record.explicit_hash_key)
        await sink.put(record.data, record.partition_key or record.sequence_number, hash_key)


CopyLetters = Callable[[Path, Sequence[int]], None]
"""Writes some of a file's letters to another file. The letters are given by their numbers."""


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
            raise ConfigurationError(key, place, "the folder with the dead letters")
        self._folder = folder
        self._suffix = sink.suffix
        self._stored_in = stored_in

    async def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """Yield the letters of each file, in the order of the files' names."""
        for path in sorted(self._folder.rglob(f"*{self._suffix}")):
            if HIDDEN in path.relative_to(self._folder).parts:
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
        """Rewrite the file with its remaining letters."""
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


class StreamLetters(StoredLetters):
    """Letters in a stream. `chunks` ends at the newest letter. Letters that fail again are put into the stream again.

    A replay stores how far it has read, next to the job's positions, so the next replay continues there.

    Raises: ConfigurationError if `flink.sink.stream` or `flink.state.uri` of the dead-letter sink is not set.
    """

    def __init__(self, properties: Properties) -> None:
        for needed in (SINK_STREAM, STATE_URI):
            if properties.value(needed) is None:
                raise ConfigurationError(needed.key, None, needed.valid, reason="the dead letters are in a stream")
        self._stream, uri = str(properties.value(SINK_STREAM)), str(properties.value(STATE_URI))
        # In a shared place the job and the replay use different names, because the job name of the dead-letter sink has a suffix.
        self._place = uri if back_end_of(uri).is_shared else f"{uri.rstrip('/')}-dead-letters"
        access = {key: value for key, value in properties.items() if key.lower().startswith("aws.")}
        self._reading = Properties({**access, JOB_NAME.key: properties.value(JOB_NAME), CHECKPOINT_INTERVAL.key: 1000})
        self._keeping = self._reading.merged({STATE_URI.key: self._place})
        self._sink_properties = properties

    async def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """Yield the letters of each batch that was read. The request for the next batch marks a batch as replayed."""
        until = await self._service_second()
        if is_replay:
            # Letters that are put again arrive after the second, so they are not replayed again.
            await asyncio.sleep(1.0)
        reading = partial(stream, self._stream, self._reading, stop_at_tip=True, until_event_time=until)
        # Only a replay stores positions, because `stream` stores them only if the call itself names the place.
        batches = reading(state_uri=self._place) if is_replay else reading(restore=await self._stored())
        async with aclosing(batches):
            async for batch in batches:
                yield [DeadLetter(batch.shard, record, "") for record in batch.records]

    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> None:
        """Put the failed letters into the stream again."""
        if failed:
            async with KinesisSink(self._sink_properties) as sink:
                await put_letters(sink, failed)

    async def _service_second(self) -> int:
        """Return the last millisecond of the current second of the service's clock, from which this machine's may differ (epoch ms)."""
        async with KinesisClient(self._reading, [self._stream]) as client:
            asked = partial(client.server_time_ms, self._stream)
            now = await call_with_retries(asked, LIST_SHARDS_RETRIES.policy(self._reading))
        return now // 1000 * 1000 + 999

    async def _stored(self) -> list[State] | None:
        """Return the positions that the last replay stored, or None if there was no replay."""
        store = None if missing_folder(self._place) else build_store(load_registry(), self._keeping)
        if store is None:
            return None
        try:
            return [*await JobStateReader(store).load()] or None
        finally:
            await store.close()
