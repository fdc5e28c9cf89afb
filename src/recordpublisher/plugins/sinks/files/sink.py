"""FileSink, the base of the file sinks: batches wait for a checkpoint, which writes them as one file for each shard."""

import asyncio
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext, State
from recordpublisher.plugins.stores.durable_files import make_folder, path_of, why_not_writable
from recordpublisher.publishers.base import Checks
from recordpublisher.publishers.errors import ConfigurationError, SinkError
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.groups.discovery_and_state import SHARD_ASSIGNMENT
from recordpublisher.publishers.properties.groups.sinks import FILE_BUFFER
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shards import is_valid_name

from ..failed_commit_guard import FailedCommitGuard
from .staged_files import HIDDEN, Files
from .subtask_positions import FileSubtaskPositions
from .worker_positions import WORKERS, FileWorkerPositions

Rejected = list[tuple[RecordBatch, str]]
"""Records that cannot be written, each as a batch of one, with the reason."""


@dataclass(frozen=True, slots=True)
class WaitingBatch:
    """A batch that waits for a checkpoint: its stream and shard, its first and last record, its content in the sink's form, its bytes."""

    stream: str
    shard_id: str
    first: str
    last: str
    content: Any
    held_bytes: int

    @property
    def shard(self) -> str:
        """As `Shard.key`."""
        return f"{self.stream}/{self.shard_id}"


class FileSink(Sink):
    """Owns the batches that wait for a checkpoint.

    Files are named `<stream>/<shard>/<first>-<last>`, by sequence and sub-sequence numbers. When more than
    `flink.sink.file.buffer.bytes` wait, the sink requests a checkpoint at once.
    """

    suffix = ""

    def __init__(self, properties: Properties, path: Property[str | None]) -> None:
        """`path` is the property of the folder. Raises: ConfigurationError when it is not set, or is no path."""
        folder = properties.value(path)
        if folder is None:
            raise ConfigurationError(path.key, None, "a folder")
        self._path = path_of(folder, path.key)
        self._key = path.key
        self._limit = properties.value(FILE_BUFFER)
        self._context = SinkContext()
        self._begin_empty()
        self._subtask_positions = FileSubtaskPositions(Path(folder))
        self._worker_positions = FileWorkerPositions(Path(folder), self._commit, self._begin_empty)

    def prepare(self, batch: RecordBatch) -> Any:
        """On the event loop: the form in which a batch waits for the checkpoint; the batch itself unless another form is smaller."""
        return batch

    @abstractmethod
    def file_writer(self, contents: Sequence[Any], rejected: Rejected) -> Callable[[Path], None] | None:
        """In a thread: a function that writes one shard's file, or None when no record is valid; adds invalid records to `rejected`."""

    async def open(self, context: SinkContext) -> Sequence[State] | None:
        """Open the folder; returns the positions of all subtasks. Raises: ConfigurationError, StateError."""
        self._context = context
        self._begin_empty()
        try:
            if context.is_elastic:
                await self._open_elastic()
                return None
            return await self._open() or None
        except OSError as error:
            raise ConfigurationError(
                self._key, self._path, "a folder that can be written", reason=str(error)
            ) from error

    async def stored_positions(self) -> Sequence[State]:
        """The positions of all subtasks, read only. Raises: StateError."""
        return await self._subtask_positions.states()

    def destination(self) -> str:
        """The folder."""
        return f"{type(self).__name__}, folder {Path(self._path).absolute()}"

    def worker_positions(self) -> FileWorkerPositions:
        """The entries of workers, in the hidden folder."""
        return self._worker_positions

    def revoked(self, shards: Collection[str]) -> None:
        """Drop what waits of these shards: it is read again by another process."""
        self._keep([part for part in self._waiting if part.shard not in shards])

    def checks(self) -> Checks:
        """Whether this user can write into the folder, or create it."""

        async def folder() -> str:
            if (reason := await asyncio.to_thread(why_not_writable, Path(self._path))) is not None:
                raise ConfigurationError(self._key, self._path, "a folder that this user can write", reason=reason)
            return f"{self._path} can be written"

        return {"folder": folder, **super().checks()}

    async def write(self, batch: RecordBatch) -> None:
        """Keep the batch for the next checkpoint. Raises: SinkError when its shard or its sequence numbers cannot be file names."""
        _check_names(batch)
        names = batch.stream, batch.shard_id, _row(batch, 0), _row(batch, -1)
        self._waiting.append(WaitingBatch(*names, self.prepare(batch), batch.held_bytes))
        self._waiting_bytes += batch.held_bytes
        if self._waiting_bytes >= self._limit:
            self._context.request_checkpoint()

    async def flush(self, checkpoint: Checkpoint | None = None) -> None:
        """Write the waiting batches as files, and store the checkpoint's state with them.

        Raises: FencedError when a newer start owns the folder; SinkError for a record that cannot be written, unless bad records are
        skipped or dead letters.
        """
        if checkpoint is None:
            if self._waiting:
                raise SinkError("a file sink writes files only at checkpoints: `flush` needs a checkpoint")
            return
        await self._commit(lambda files: self._subtask_positions.commit(files, checkpoint.state))

    async def _commit(self, store: Callable[[Files], Awaitable[None]], shards: Collection[str] | None = None) -> None:
        """`store` commits the files of these shards (None: of all), which then wait no more."""
        with self._guard:
            parts = [part for part in self._waiting if shards is None or part.shard in shards]
            rejected: Rejected = []
            files = await asyncio.to_thread(self._files, parts, rejected)
            await self._context.reject_all(rejected)
            try:
                await store(files)
            except OSError as error:
                raise SinkError(f"the files of this checkpoint cannot be written: {error}") from error
        done = {id(part) for part in parts}
        self._keep([part for part in self._waiting if id(part) not in done])

    def _keep(self, parts: list[WaitingBatch]) -> None:
        self._waiting, self._waiting_bytes = parts, sum(part.held_bytes for part in parts)

    def _begin_empty(self) -> None:
        """What a commit that failed before may have written is of no importance any more."""
        self._keep([])
        self._guard = FailedCommitGuard()

    async def _open(self) -> list[State]:
        await asyncio.to_thread(make_folder, Path(self._path) / HIDDEN)
        if any((Path(self._path) / HIDDEN / WORKERS).glob("*")):
            raise self._refusal("STATIC", "ELASTIC")
        return await self._subtask_positions.open(self._context.subtask, self._context.parallelism)

    async def _open_elastic(self) -> None:
        if await self._subtask_positions.states():
            raise self._refusal("ELASTIC", "STATIC")
        await asyncio.to_thread(make_folder, Path(self._path) / HIDDEN / WORKERS)

    def _refusal(self, given: str, stored: str) -> ConfigurationError:
        reason = f"{self._path} has the positions of a job with {stored}, and records would come twice"
        return ConfigurationError(SHARD_ASSIGNMENT.key, given, f"{stored}, or another folder", reason=reason)

    def _files(self, parts: Sequence[WaitingBatch], rejected: Rejected) -> Files:
        by_shard: dict[tuple[str, str], list[WaitingBatch]] = {}
        for part in parts:
            by_shard.setdefault((part.stream, part.shard_id), []).append(part)
        made = {
            self._name(parts): self.file_writer([part.content for part in parts], rejected)
            for parts in by_shard.values()
        }
        return {name: writer for name, writer in made.items() if writer is not None}

    def _name(self, parts: Sequence[WaitingBatch]) -> str:
        first, last = parts[0], parts[-1]
        return f"{first.stream}/{first.shard_id}/{first.first}-{last.last}{self.suffix}"


_NUMBER = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,129}")


def _check_names(batch: RecordBatch) -> None:
    """Check the names that become a path, which must stay inside the folder. Raises: SinkError.

    The Kinesis client checks its own; other publishers name shards and records as they like.
    """
    numbers = batch.sequence_numbers
    for name in (batch.stream, batch.shard_id):
        if not is_valid_name(name):
            raise SinkError(
                f"{name[:200]!r} is not the name of a stream or shard: letters, digits, _ . - are valid, 128 at most"
            )
    for number in (numbers[0], numbers[-1]):
        if not _NUMBER.fullmatch(number):
            raise SinkError(
                f"{number[:200]!r} of {batch.stream}/{batch.shard_id} is not a sequence number that fits into a file name: "
                "letters, digits, _ . - are valid, 129 at most"
            )


def _row(batch: RecordBatch, index: int) -> str:
    return f"{batch.sequence_numbers[index]}.{batch.sub_sequence_numbers[index]}"


def bytes_writer(content: bytes) -> Callable[[Path], None]:
    """A function that writes this content."""
    return partial(_write, content)


def _write(content: bytes, path: Path) -> None:
    path.write_bytes(content)
