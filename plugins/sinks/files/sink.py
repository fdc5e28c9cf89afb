"""FileSink: what the file sinks share: batches wait for a checkpoint, then become one file for each shard."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ....fetcher.sink import Checkpoint, Sink, SinkContext, State
from ....publishers.errors import ConfigurationError, SinkError
from ....publishers.properties import Properties, Property
from ....publishers.property_table import FILE_BUFFER
from ....publishers.records import RecordBatch
from ..commit_guard import CommitGuard
from .folder import OutputFolder

Rejected = list[tuple[RecordBatch, str]]
"""Records, as batches of one, that cannot be written, and why."""


class FileSink(Sink):
    """Owns the batches that wait for a checkpoint.

    Files are named `<stream>/<shard>/<first>-<last>`, by sequence and sub-sequence numbers; more than `flink.sink.file.buffer.bytes`
    waiting asks for a checkpoint at once.
    """

    suffix = ""

    def __init__(self, properties: Properties, path: Property[str | None]) -> None:
        """`path` is the property of the folder. Raises: ConfigurationError when it is not set."""
        folder = properties.value(path)
        if folder is None:
            raise ConfigurationError(path.key, None, "a folder")
        self._path = folder
        self._key = path.key
        self._limit = properties.value(FILE_BUFFER)
        self._context = SinkContext()
        self._waiting: list[RecordBatch] = []
        self._waiting_bytes = 0
        self._guard = CommitGuard()

    @abstractmethod
    def writer_of(self, batches: Sequence[RecordBatch], rejected: Rejected) -> Callable[[Path], None] | None:
        """In a thread: what writes the file of one shard's batches, None when nothing is left of them; adds to `rejected`."""

    async def open(self, context: SinkContext) -> Sequence[State] | None:
        """Open the folder; answers the positions of all subtasks. Raises: ConfigurationError, StateError."""
        self._context = context
        self._waiting, self._waiting_bytes, self._guard = [], 0, CommitGuard()
        try:
            return await asyncio.to_thread(self._open) or None
        except OSError as error:
            raise ConfigurationError(
                self._key, self._path, "a folder that can be written", reason=str(error)
            ) from error

    async def write(self, batch: RecordBatch) -> None:
        """Keep the batch for the next checkpoint."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.held_bytes
        if self._waiting_bytes >= self._limit:
            self._context.request_checkpoint()

    async def flush(self, checkpoint: Checkpoint | None = None) -> None:
        """Make files of what waits, and store the checkpoint's state with them.

        Raises: FencedError when a newer start owns the folder, SinkError for a record that cannot be written unless such are skipped or
        dead letters.
        """
        if checkpoint is None:
            if self._waiting:
                raise SinkError("a file sink makes files at checkpoints only: it needs one to flush")
            return
        with self._guard:
            await self._commit(checkpoint.state)
        self._waiting, self._waiting_bytes = [], 0

    async def _commit(self, state: State) -> None:
        rejected: Rejected = []
        files = await asyncio.to_thread(self._files, rejected)
        for record, reason in rejected:
            await self._context.reject(record, reason)
        try:
            await asyncio.to_thread(self._folder.commit, files, state)
        except OSError as error:
            raise SinkError(f"the files of this checkpoint cannot be written: {error}") from error

    def _open(self) -> list[State]:
        self._folder = OutputFolder(Path(self._path))
        return self._folder.open(self._context.subtask, self._context.parallelism)

    def _files(self, rejected: Rejected) -> dict[str, Callable[[Path], None]]:
        by_shard: dict[str, list[RecordBatch]] = {}
        for batch in self._waiting:
            by_shard.setdefault(batch.shard.key, []).append(batch)
        made = {self._name(batches): self.writer_of(batches, rejected) for batches in by_shard.values()}
        return {name: writer for name, writer in made.items() if writer is not None}

    def _name(self, batches: Sequence[RecordBatch]) -> str:
        first, last = batches[0], batches[-1]
        begin = f"{first.sequence_numbers[0]}.{first.sub_sequence_numbers[0]}"
        end = f"{last.sequence_numbers[-1]}.{last.sub_sequence_numbers[-1]}"
        return f"{first.stream}/{first.shard_id}/{begin}-{end}{self.suffix}"


def bytes_writer(content: bytes) -> Callable[[Path], None]:
    """Writes what is there already."""
    return partial(_write, content)


def _write(content: bytes, path: Path) -> None:
    path.write_bytes(content)
