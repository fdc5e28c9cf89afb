"""PositionTable: each subtask's snapshot in a row that only the newest generation of the subtask may change (S6)."""

import json
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, String, Table, Text, func, inspect, select

from recordpublisher.fetcher.sink import State
from recordpublisher.fetcher.stored_documents import read_document
from recordpublisher.plugins.stores.sql.postgresql_sessions import end_sessions, lock_table_creation, session_prefix
from recordpublisher.publishers.errors import ConfigurationError, FencedError
from recordpublisher.publishers.properties.groups.job import JOB_NAME
from recordpublisher.publishers.properties.groups.sinks import SQL_TABLE

MAX_JOB_NAME = 200


def writers_of(connection: Connection, positions: Table, target: str | None) -> set[str]:
    """The jobs in a table of positions, if it is there, that belong to the rows in table `target`."""
    if not inspect(connection).has_table(positions.name):
        return set()
    return set(connection.scalars(select(positions.c.job).where(positions.c.target == target)))


class PositionTable:
    """The rows of one job in a table that many jobs may share. Every method runs inside the caller's transaction.

    `checkpoint` counts the commits of a generation: after a lost connection it shows whether the last one succeeded. A snapshot is stored
    with the name of the table that has its rows, `target`: for another table it would be a start in the middle.
    """

    def __init__(self, name: str, job: str, target: str | None = None) -> None:
        self._job = job
        self._target = target
        self._session = session_prefix(name, job)
        self._metadata = MetaData()
        self._table = Table(
            name,
            self._metadata,
            Column("job", String(MAX_JOB_NAME), primary_key=True),
            Column("subtask", Integer, primary_key=True, autoincrement=False),
            Column("parallelism", Integer, nullable=False),
            Column("generation", BigInteger, nullable=False),
            Column("checkpoint", BigInteger, nullable=False),
            Column("snapshot", Text),
            Column("target", Text),
        )

    def open(self, connection: Connection, subtask: int, parallelism: int | None = None) -> int:
        """Take the next generation. From now on earlier starts of the subtask cannot commit; with `parallelism`, neither can any subtask of
        a start with another parallelism."""
        self._end_predecessors(connection, subtask, parallelism or 0)
        self._prepare(connection)
        table, mine = self._table.c, self._row(subtask)
        known = connection.scalar(select(func.max(table.generation)).where(table.job == self._job))
        fresh = {"generation": int(known or 0) + 1, "checkpoint": 0}
        if parallelism is not None:
            others = self._of_job() & (table.parallelism != parallelism)
            connection.execute(self._table.update().where(others).values(fresh))
        entry = {**fresh, "parallelism": parallelism or 0}
        if not connection.execute(self._table.update().where(mine).values(entry)).rowcount:
            connection.execute(self._table.insert().values(job=self._job, subtask=subtask, **entry))
        return fresh["generation"]

    def load(self, connection: Connection) -> list[State]:
        """Every subtask's snapshot. Raises: StateError for one that cannot be read."""
        self._prepare(connection)
        return self._load(connection)

    def writers(self, connection: Connection) -> set[str]:
        """The jobs that have positions for the target. Nothing is created."""
        return writers_of(connection, self._table, self._target)

    def stored(self, connection: Connection) -> list[State]:
        """The same for a reader, who creates and locks nothing. Raises: StateError, ConfigurationError for those of another target."""
        return self._load(connection) if inspect(connection).has_table(self._table.name) else []

    def _load(self, connection: Connection) -> list[State]:
        table = self._table.c
        columns = table.subtask, table.snapshot, table.target
        rows = connection.execute(select(*columns).where(self._of_job()).order_by(table.subtask))
        stored = [row for row in rows if row.snapshot is not None]
        for row in stored:
            self._check_target(row.target)
        return [read_document(row.snapshot, dict[str, Any], self._place(row.subtask)) for row in stored]

    def _check_target(self, target: str | None) -> None:
        if None not in (target, self._target) and target != self._target:
            reason = f"the positions of job '{self._job}' belong to the rows in table '{target}': another one would begin in the middle"
            raise ConfigurationError(SQL_TABLE.key, self._target, f"{target}, or another {JOB_NAME.key}", reason=reason)

    def last_checkpoint(self, connection: Connection, subtask: int, generation: int) -> int:
        """The number of the generation's last commit; the row stays locked until the transaction ends.

        Raises: FencedError when another generation owns it.
        """
        table = self._table.c
        wanted = select(table.generation, table.checkpoint).where(self._row(subtask)).with_for_update()
        found = connection.execute(wanted).one_or_none()
        if found is None or found.generation != generation:
            owner = "nobody" if found is None else f"generation {found.generation}"
            raise FencedError(
                f"{owner} owns the positions of subtask {subtask} of job '{self._job}'; generation {generation} must stop"
            )
        return int(found.checkpoint)

    def keep(self, connection: Connection, subtask: int, checkpoint: int, state: State) -> None:
        """Store a snapshot in the row that `last_checkpoint` has locked."""
        entry = {"checkpoint": checkpoint, "snapshot": json.dumps(state), "target": self._target}
        connection.execute(self._table.update().where(self._row(subtask)).values(entry))
        self._forget_other_parallelisms(connection, subtask)

    def _forget_other_parallelisms(self, connection: Connection, subtask: int) -> None:
        """Delete the rows of other parallelisms once every subtask of this start has committed: they are superseded."""
        table = self._table.c
        rows = connection.execute(
            select(table.subtask, table.parallelism, table.checkpoint).where(self._of_job())
        ).all()
        parallelism = next(row.parallelism for row in rows if row.subtask == subtask)
        committed = sum(row.parallelism == parallelism and row.checkpoint > 0 for row in rows)
        if 0 < parallelism <= committed:
            connection.execute(self._table.delete().where(self._of_job() & (table.parallelism != parallelism)))

    def _end_predecessors(self, connection: Connection, subtask: int, parallelism: int) -> None:
        """End the sessions that this start replaces: the subtask's last one, and all of a start with another parallelism."""
        mine = self.session_name(subtask, parallelism)
        end_sessions(connection, mine, like=f"{self._session} %", unlike=f"{self._session} {parallelism} %")

    def session_name(self, subtask: int, parallelism: int) -> str:
        """The name of a subtask's session in PostgreSQL's list of sessions."""
        return f"{self._session} {parallelism} {subtask}"

    def _prepare(self, connection: Connection) -> None:
        """Create the table, and lock it, so that two starts do not take the same generation."""
        lock_table_creation(connection, self._table.name)
        self._metadata.create_all(connection)

    def _of_job(self) -> Any:
        return self._table.c.job == self._job

    def _row(self, subtask: int) -> Any:
        return self._of_job() & (self._table.c.subtask == subtask)

    def _place(self, subtask: int) -> str:
        return f"the snapshot of subtask {subtask} of job '{self._job}' in table {self._table.name}"
