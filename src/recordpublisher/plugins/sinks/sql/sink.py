"""SqlSink: writes rows and positions in one transaction, fenced by generation (S6)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sqlalchemy import Connection

from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext, State
from recordpublisher.plugins.stores.sql.database import Database
from recordpublisher.publishers.errors import ConfigurationError, SinkError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import JOB_NAME, SQL_BUFFER, SQL_TABLE, SQL_URI
from recordpublisher.publishers.records import RecordBatch

from ..failed_commit_guard import FailedCommitGuard
from .positions import PositionTable
from .rows import Row
from .target_table import RejectedRowsError, TargetTable

POSITIONS = "recordpublisher_positions"


class SqlSink(Sink):
    """Owns the batches that wait for a checkpoint, and the connection.

    A checkpoint is one short transaction: check that the generation is still ours, insert the rows, store the positions. So a crash
    leaves rows and positions or neither, and a suspended process holds no locks between checkpoints. When more than
    `flink.sink.sql.buffer.bytes` wait, the sink requests a checkpoint at once.
    """

    def __init__(self, properties: Properties) -> None:
        """Raises: ConfigurationError when the URI, the table or the job's name is missing or wrong."""
        uri, job = properties.value(SQL_URI), properties.value(JOB_NAME)
        if uri is None:
            raise ConfigurationError(SQL_URI.key, None, SQL_URI.valid, reason="the sql sink needs a database")
        if job is None:
            reason = "the sql sink keeps the job's positions under this name"
            raise ConfigurationError(JOB_NAME.key, None, JOB_NAME.valid, reason=reason)
        self._table_name = properties.value(SQL_TABLE)
        self._limit = properties.value(SQL_BUFFER)
        self._positions = PositionTable(POSITIONS, job, self._table_name)
        self._database = Database(uri, SQL_URI.key, properties)
        self._context = SinkContext()
        self._generation = 0
        self._checkpoints = 0
        self._waiting: list[RecordBatch] = []
        self._waiting_bytes = 0
        self._guard = FailedCommitGuard()

    async def open(self, context: SinkContext) -> Sequence[State] | None:
        """Take the next generation; returns the positions of all subtasks.

        Raises: ConfigurationError, RetriesExhaustedError, StateError.
        """
        self._context = context
        self._checkpoints, self._waiting, self._waiting_bytes, self._guard = 0, [], 0, FailedCommitGuard()
        self._database.session_name = self._positions.session_name(context.subtask, context.parallelism)
        return await self._database.transaction(self._open) or None

    async def stored_positions(self) -> Sequence[State]:
        """The positions of all subtasks, read only. Raises: RetriesExhaustedError, StateError."""
        return await self._database.transaction(self._positions.stored) if self._database.exists() else []

    async def write(self, batch: RecordBatch) -> None:
        """Keep the batch for the next checkpoint."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.held_bytes
        if self._waiting_bytes >= self._limit:
            self._context.request_checkpoint()

    async def flush(self, checkpoint: Checkpoint | None = None) -> None:
        """Commit the waiting rows together with the checkpoint's state.

        Raises: FencedError when a newer start owns the positions, SinkError for a bad row, unless bad rows are skipped or dead letters,
        RetriesExhaustedError when the database is unreachable.
        """
        if checkpoint is None:
            if self._waiting:
                raise SinkError("the sql sink commits rows only with their positions: `flush` needs a checkpoint")
            return
        with self._guard:
            rows = await self._database.in_thread(self._rows)
            await self._reject([row for row in rows if row.reason])
            await self._commit([row for row in rows if not row.reason], checkpoint.state)
        self._waiting, self._waiting_bytes = [], 0

    async def close(self) -> None:
        """Close the connection; rows that wait for a checkpoint are not written."""
        await self._database.close()

    def _open(self, connection: Connection) -> list[State]:
        self._positions.stored(connection)  # those of another table are refused before a running job is replaced
        self._generation = self._positions.open(connection, self._context.subtask, self._context.parallelism)
        self._target = TargetTable(connection, self._table_name)
        return self._positions.load(connection)

    def _rows(self) -> list[Row]:
        return [row for batch in self._waiting for row in self._target.rows.rows(batch)]

    async def _commit(self, rows: list[Row], state: State) -> None:
        """Commit; retry without the rows that the database rejects, until it rejects none."""
        self._checkpoints += 1
        while True:
            try:
                await self._database.transaction(partial(self._insert, rows=rows, state=state))
            except RejectedRowsError as error:
                await self._reject(error.rows)
                bad = {(id(row.batch), row.index) for row in error.rows}
                rows = [row for row in rows if (id(row.batch), row.index) not in bad]
            else:
                return

    def _insert(self, connection: Connection, rows: list[Row], state: State) -> None:
        done = self._positions.last_checkpoint(connection, self._context.subtask, self._generation)
        if done >= self._checkpoints:
            return  # an earlier attempt has committed, only its response was lost
        self._target.insert(connection, rows)
        self._positions.keep(connection, self._context.subtask, self._checkpoints, state)

    async def _reject(self, rows: list[Row]) -> None:
        for row in rows:
            await self._context.reject(row.record, row.reason)
