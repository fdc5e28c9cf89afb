"""SqlWorkerPositions: commits rows together with the positions of a worker, in a row that can be sealed (ELASTIC assignment: E1, E3)."""

import json
import secrets
from collections.abc import Collection
from functools import partial
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Connection, MetaData, String, Table, Text, inspect, select, text

from recordpublisher.fetcher.sink import State, WorkerPositions
from recordpublisher.fetcher.stored_documents import read_document
from recordpublisher.plugins.stores.sql.database import Database
from recordpublisher.plugins.stores.sql.postgresql_sessions import end_sessions, lock_table_creation, session_prefix
from recordpublisher.publishers.errors import FencedError

from .positions import writers_of
from .row_buffer import RowBuffer


class WorkerTable:
    """The rows of one job in a table that many jobs may share. Every method runs inside the caller's transaction.

    `checkpoint` counts a worker's commits: after a lost connection it shows whether the last one succeeded. Each try of a join would begin
    at a number of its own: a try that is carried out late, when the worker was forgotten, makes a row that its commits do not fit.
    """

    def __init__(self, name: str, job: str, target: str) -> None:
        """`target` is the table that has the rows."""
        self._job = job
        self._target = target
        self._session = session_prefix(name, job)
        self._metadata = MetaData()
        self._table = Table(
            name,
            self._metadata,
            Column("job", String(200), primary_key=True),
            Column("worker", String(64), primary_key=True),
            Column("checkpoint", BigInteger, nullable=False),
            Column("sealed", Boolean, nullable=False),
            Column("snapshot", Text),
            Column("target", Text),
        )

    def create(self, connection: Connection) -> None:
        """Create the table; until the transaction ends no other process creates it, or the table of rows."""
        lock_table_creation(connection, self._table.name)
        self._metadata.create_all(connection)

    def targets(self, connection: Connection) -> set[str]:
        """The tables of rows that this job's workers have positions for. Nothing is created."""
        if not inspect(connection).has_table(self._table.name):
            return set()
        return set(connection.scalars(select(self._table.c.target).where(self._of_job())))

    def writers(self, connection: Connection) -> set[str]:
        """The jobs whose workers write to the target. Nothing is created."""
        return writers_of(connection, self._table, self._target)

    def session_name(self, worker: str) -> str:
        """The name of a worker's session in PostgreSQL's list of sessions."""
        return f"{self._session} {worker}"

    def join(self, connection: Connection, worker: str) -> int:
        """Create a worker's row, and give this session its name. Nothing happens to a row that is there. Returns its number."""
        if connection.dialect.name == "postgresql":
            name = {"name": self.session_name(worker)}
            connection.execute(text("SELECT set_config('application_name', :name, false)"), name)
        row = self._row(connection, worker)
        if row is not None:
            return int(row.checkpoint)
        number = secrets.randbits(42) << 20
        entry = {"checkpoint": number, "sealed": False, "target": self._target}
        connection.execute(self._table.insert().values(job=self._job, worker=worker, **entry))
        return number

    def last_checkpoint(self, connection: Connection, worker: str, commits: range) -> int:
        """The number of the worker's last commit, one of `commits`; the row stays locked until the transaction ends.

        Raises: FencedError for a worker that was sealed or forgotten.
        """
        row = self._row(connection, worker, is_locked=True)
        if row is None or row.sealed or row.checkpoint not in commits:
            what = "was sealed" if row is not None and row.sealed else "was forgotten"
            raise FencedError(f"worker {worker} of job '{self._job}' {what} in table {self._table.name}")
        return int(row.checkpoint)

    def keep(self, connection: Connection, worker: str, checkpoint: int, positions: State) -> None:
        """Store positions in the row that `last_checkpoint` has locked."""
        entry = {"checkpoint": checkpoint, "snapshot": json.dumps(positions)}
        connection.execute(self._table.update().where(self._is(worker)).values(entry))

    def read(self, connection: Connection, worker: str) -> State | None:
        """A worker's positions. Raises: StateError when they cannot be read."""
        row = self._row(connection, worker)
        if row is None or row.snapshot is None:
            return None
        return read_document(
            row.snapshot, dict[str, Any], f"the positions of worker {worker} in table {self._table.name}"
        )

    def seal(self, connection: Connection, worker: str) -> State | None:
        """Seal a row, and read it. First end the worker's session: if it is stopped within a commit, its lock would stay."""
        end_sessions(connection, self.session_name(worker))
        connection.execute(self._table.update().where(self._is(worker)).values(sealed=True))
        return self.read(connection, worker)

    def forget(self, connection: Connection, worker: str) -> None:
        """Delete a row."""
        connection.execute(self._table.delete().where(self._is(worker)))

    def _row(self, connection: Connection, worker: str, is_locked: bool = False) -> Any:
        wanted = select(self._table).where(self._is(worker))
        return connection.execute(wanted.with_for_update() if is_locked else wanted).one_or_none()

    def _of_job(self) -> Any:
        return self._table.c.job == self._job

    def _is(self, worker: str) -> Any:
        return self._of_job() & (self._table.c.worker == worker)


class SqlWorkerPositions(WorkerPositions):
    """Owns the name of this process's worker, the number with which it joined, and that of its last commit."""

    def __init__(self, database: Database, buffer: RowBuffer, table: WorkerTable) -> None:
        self._database = database
        self._buffer = buffer
        self._table = table
        self._worker = ""
        self._joined = self._commits = 0

    async def join(self, worker: str) -> None:
        """Insert the worker's row; its name is that of the session from now on. Raises: RetriesExhaustedError."""
        self._buffer.reset()
        self._database.name_session(self._table.session_name(worker))
        number = await self._database.transaction(partial(self._table.join, worker=worker))
        if worker != self._worker:  # else its row counts commits
            self._worker, self._joined, self._commits = worker, number, number

    async def commit(self, positions: State, shards: Collection[str] | None) -> None:
        """Insert the rows of these shards and store the positions. Raises: FencedError, SinkError, RetriesExhaustedError."""
        self._commits += 1
        worker, number, known = self._worker, self._commits, range(self._joined, self._commits + 1)

        def begin(connection: Connection) -> bool:
            return self._table.last_checkpoint(connection, worker, known) < number

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
