"""SqlWorkerPositions: commits rows together with the positions of a worker (ELASTIC assignment)."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from sqlalchemy import Connection

from recordpublisher.fetcher.worker_positions import State, WorkerPositions
from recordpublisher.plugins.stores.sql.database import Database

from .row_buffer import RowBuffer
from .worker_table import WorkerTable


class SqlWorkerPositions(WorkerPositions):
    """Owns the name of this process's worker, and the number of its last commit."""

    def __init__(self, database: Database, buffer: RowBuffer, table: WorkerTable) -> None:
        self._database = database
        self._buffer = buffer
        self._table = table
        self._worker = ""
        self._commits = 0

    async def join(self, worker: str) -> None:
        """Insert the worker's row; its name is that of the session from now on. Raises: RetriesExhaustedError."""
        self._worker, self._commits = worker, 0
        self._buffer.reset()
        self._database.session_name = self._table.session_name(worker)
        await self._database.transaction(partial(self._table.join, worker=worker))

    async def commit(self, positions: State, shards: Collection[str] | None) -> None:
        """Insert the rows of these shards and store the positions. Raises: FencedError, SinkError, RetriesExhaustedError."""
        self._commits += 1
        worker, number = self._worker, self._commits

        def begin(connection: Connection) -> bool:
            return self._table.last_checkpoint(connection, worker) < number

        def keep(connection: Connection) -> None:
            self._table.keep(connection, worker, number, positions)

        await self._buffer.commit(begin, keep, shards)

    async def read(self, worker: str) -> State | None:
        """Select a worker's positions. Raises: RetriesExhaustedError, StateError."""
        return await self._database.transaction(partial(self._table.read, worker=worker))

    async def seal(self, worker: str) -> State | None:
        """End the worker's session, and seal its row. Raises: RetriesExhaustedError, StateError."""
        return await self._database.transaction(partial(self._table.seal, worker=worker))

    async def forget(self, worker: str) -> None:
        """Delete the worker's row. Raises: RetriesExhaustedError."""
        await self._database.transaction(partial(self._table.forget, worker=worker))
