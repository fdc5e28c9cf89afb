"""WorkerTable: the positions of each worker of a group in a row that can be sealed (ELASTIC assignment: E1, E3)."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Connection, MetaData, String, Table, Text, inspect, select, text

from recordpublisher.fetcher.worker_positions import State
from recordpublisher.plugins.stores.sql.postgresql_sessions import end_sessions, lock_table_creation, session_prefix
from recordpublisher.publishers.errors import FencedError, StateError


class WorkerTable:
    """The rows of one job in a table that many jobs may share. Every method runs inside the caller's transaction.

    `checkpoint` counts a worker's commits: after a lost connection it shows whether the last one succeeded.
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

    def session_name(self, worker: str) -> str:
        """The name of a worker's session in PostgreSQL's list of sessions."""
        return f"{self._session} {worker}"

    def join(self, connection: Connection, worker: str) -> None:
        """Create a worker's row, and give this session its name. Nothing happens to a row that is there."""
        if connection.dialect.name == "postgresql":
            name = {"name": self.session_name(worker)}
            connection.execute(text("SELECT set_config('application_name', :name, false)"), name)
        if self._row(connection, worker) is None:
            entry = {"checkpoint": 0, "sealed": False, "target": self._target}
            connection.execute(self._table.insert().values(job=self._job, worker=worker, **entry))

    def last_checkpoint(self, connection: Connection, worker: str) -> int:
        """The number of the worker's last commit; the row stays locked until the transaction ends.

        Raises: FencedError for a worker that was sealed or forgotten.
        """
        row = self._row(connection, worker, is_locked=True)
        if row is None or row.sealed:
            what = "was forgotten" if row is None else "was sealed"
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
        try:
            content = json.loads(row.snapshot)
        except ValueError as error:
            raise StateError(f"the positions of worker {worker} in table {self._table.name}: {error}") from error
        if not isinstance(content, dict):
            raise StateError(f"the positions of worker {worker} in table {self._table.name} are no JSON object")
        return content

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
