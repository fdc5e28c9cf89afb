"""SqlSink: writes rows and positions in one transaction, fenced by generation or by worker (S6)."""

import logging
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection

from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext, State
from recordpublisher.plugins.stores.sql.database import Database
from recordpublisher.publishers.base import Checks
from recordpublisher.publishers.errors import ConfigurationError, SinkError
from recordpublisher.publishers.properties.groups.discovery_and_state import SHARD_ASSIGNMENT
from recordpublisher.publishers.properties.groups.job import JOB_NAME
from recordpublisher.publishers.properties.groups.sinks import SQL_BUFFER, SQL_COLUMNS, SQL_TABLE, SQL_URI
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch

from .positions import MAX_JOB_NAME, PositionTable
from .row_buffer import RowBuffer
from .table_definitions import find_table
from .target_table import TargetTable
from .worker_positions import SqlWorkerPositions, WorkerTable

log = logging.getLogger("recordpublisher.database")
POSITIONS, WORKERS = "recordpublisher_positions", "recordpublisher_workers"


class SqlSink(Sink):
    """Owns the batches that wait for a checkpoint, and the connection.

    A checkpoint is one short transaction: check that the generation, or the worker, is still ours, insert the rows, store the positions.
    So a crash leaves rows and positions or neither, and a suspended process holds no locks between checkpoints. When more than
    `flink.sink.sql.buffer.bytes` wait, the sink requests a checkpoint at once.
    """

    def __init__(self, properties: Mapping[str, object]) -> None:
        """Raises: ConfigurationError when the URI, the table or the job's name is missing or wrong."""
        properties = Properties(properties)
        uri, job = properties.value(SQL_URI), properties.value(JOB_NAME)
        if uri is None:
            raise ConfigurationError(SQL_URI.key, None, SQL_URI.valid, reason="the sql sink needs a database")
        if job is None:
            reason = "the sql sink keeps the job's positions under this name"
            raise ConfigurationError(JOB_NAME.key, None, JOB_NAME.valid, reason=reason)
        if len(job) > MAX_JOB_NAME:
            raise ConfigurationError(JOB_NAME.key, job, f"at most {MAX_JOB_NAME} characters in a database")
        self._job = job
        self._table_name, self._columns = properties.value(SQL_TABLE), properties.value(SQL_COLUMNS)
        self._database = Database(uri, SQL_URI.key, properties)
        self._positions = PositionTable(POSITIONS, job, self._table_name)
        self._workers = WorkerTable(WORKERS, job, self._table_name)
        self._buffer = RowBuffer(self._database, properties.value(SQL_BUFFER))
        self._worker_positions = SqlWorkerPositions(self._database, self._buffer, self._workers)
        self._context = SinkContext()
        self._generation = 0
        self._checkpoints = 0

    async def open(self, context: SinkContext) -> Sequence[State] | None:
        """Take the next generation; returns the positions of all subtasks. With ELASTIC assignment: None, and no generation is taken.

        Raises: ConfigurationError, RetriesExhaustedError, StateError.
        """
        self._context, self._checkpoints = context, 0
        if context.is_elastic:
            self._buffer.open(context, await self._database.transaction(self._open_elastic))
            return None
        self._database.name_session(self._positions.session_name(context.subtask, context.parallelism))
        target, states = await self._database.transaction(self._open)
        self._buffer.open(context, target)
        return states or None

    async def stored_positions(self) -> Sequence[State]:
        """The positions of all subtasks, read only. Raises: RetriesExhaustedError, StateError."""
        return await self._database.transaction(self._positions.stored) if self._database.exists() else []

    def destination(self) -> str:
        """The database and the table."""
        return f"{type(self).__name__}, table {self._table_name} of {self._database.place}"

    def checks(self) -> Checks:
        """Whether the positions can be read, and the table is there or can be created; nothing is."""

        async def table() -> str:
            self._database.check_folder()
            exists = self._database.exists() and await self._database.transaction(
                lambda connection: find_table(connection, self._table_name) is not None
            )
            return f"{self._table_name} {'is there' if exists else 'will be created'}"

        return {**super().checks(), "table": table}

    def worker_positions(self) -> SqlWorkerPositions:
        """The rows of workers, in a table of their own."""
        return self._worker_positions

    async def write(self, batch: RecordBatch) -> None:
        """Keep the batch for the next checkpoint."""
        self._buffer.add(batch)

    def revoked(self, shards: Collection[str]) -> None:
        """Drop what waits of these shards: it is read again by another process."""
        self._buffer.drop(shards)

    async def flush(self, checkpoint: Checkpoint | None = None) -> None:
        """Commit the waiting rows together with the checkpoint's state.

        Raises: FencedError when a newer start owns the positions, SinkError for a bad row, unless bad rows are skipped or dead letters,
        RetriesExhaustedError when the database is unreachable.
        """
        if checkpoint is None:
            if not self._buffer.is_empty:
                raise SinkError("the sql sink commits rows only with their positions: `flush` needs a checkpoint")
            return
        self._checkpoints += 1
        subtask, generation, number, state = (
            self._context.subtask,
            self._generation,
            self._checkpoints,
            checkpoint.state,
        )

        def begin(connection: Connection) -> bool:
            return self._positions.last_checkpoint(connection, subtask, generation) < number

        await self._buffer.commit(begin, lambda connection: self._positions.keep(connection, subtask, number, state))

    async def close(self) -> None:
        """Close the connection; rows that wait for a checkpoint are not written."""
        await self._database.close()

    def _open(self, connection: Connection) -> tuple[TargetTable, list[State]]:
        if self._workers.targets(connection):
            raise self._refusal(WORKERS, "STATIC", "ELASTIC")
        self._positions.stored(connection)  # those of another table are refused before a running job is replaced
        self._generation = self._positions.open(connection, self._context.subtask, self._context.parallelism)
        self._warn_of_other_jobs(connection)
        return self._target(connection), self._positions.load(connection)

    def _open_elastic(self, connection: Connection) -> TargetTable:
        if self._positions.stored(connection):
            raise self._refusal(POSITIONS, "ELASTIC", "STATIC")
        others = self._workers.targets(connection) - {self._table_name}
        if others:
            reason = f"the processes of job '{self._job}' write to table '{others.pop()}'"
            raise ConfigurationError(
                SQL_TABLE.key, self._table_name, f"the same table, or another {JOB_NAME.key}", reason=reason
            )
        self._workers.create(connection)
        self._warn_of_other_jobs(connection)
        return self._target(connection)

    def _target(self, connection: Connection) -> TargetTable:
        return TargetTable(connection, self._table_name, self._columns, self._context.value_type)

    def _warn_of_other_jobs(self, connection: Connection) -> None:
        writers = self._positions.writers(connection) | self._workers.writers(connection)
        for job in sorted(writers - {self._job}):
            log.warning(
                "table %s also has rows of job '%s': the jobs have positions of their own", self._table_name, job
            )

    def _refusal(self, table: str, given: str, stored: str) -> ConfigurationError:
        reason = f"table {table} has positions of job '{self._job}' with {stored}, and rows would come twice"
        return ConfigurationError(SHARD_ASSIGNMENT.key, given, f"{stored}, or another {JOB_NAME.key}", reason=reason)
