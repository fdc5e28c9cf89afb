"""A conditional store in PostgreSQL or SQLite. The values are rows of one table, which many jobs may share."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError, VersionedValue, new_version
from recordpublisher.plugins.databases import Database, end_sessions, lock_table_creation, session_prefix
from recordpublisher.publishers.errors import ConfigurationError, StateError, StoreUnavailableError
from recordpublisher.publishers.properties.job_properties import JOB_NAME
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.safe_text import mask_passwords

# isort: split
# Imported after `databases`, which reports a missing extra.
from sqlalchemy import Column, Connection, LargeBinary, MetaData, String, Table, func, inspect, select, text

T = TypeVar("T")
TABLE = "recordpublisher_state"
_ATTEMPTS = 10
_MOST_CHARACTERS = 200
"""Greatest length of the name of a job or a value (characters)."""


class SqlStore(ConditionalStore):
    """Stores each value as a row of one table. The first write creates the table.

    A write is one statement in its own transaction, and stores a random version. If the response to a commit is lost, a retry sees by the
    version that the first attempt was committed.

    - `key`: the property that contains the URI.
    - `database`: a database that a sink shares with this store; None to open one.
    - `table`: name of the table with the values.

    Raises: ConfigurationError if the URI is not valid, or if the job has no name or a name that is too long. Each row contains the name.
    """

    def __init__(
        self, uri: str, key: str, properties: Properties, *, database: Database | None = None, table: str = TABLE
    ) -> None:
        job = properties.value(JOB_NAME)
        if job is None:
            raise ConfigurationError(
                JOB_NAME.key, None, JOB_NAME.valid, reason="the table keeps the state of each job under its name"
            )
        if len(job) > _MOST_CHARACTERS:
            raise ConfigurationError(JOB_NAME.key, job, f"at most {_MOST_CHARACTERS} characters in a database")
        self.place = f"table {table} of {mask_passwords(uri)}, job '{job}'"
        self._job = job
        self._database = database or Database(uri, key, properties)
        self._metadata = MetaData()
        self._table = Table(
            table,
            self._metadata,
            Column("job", String(_MOST_CHARACTERS), primary_key=True),
            Column("name", String(_MOST_CHARACTERS), primary_key=True),
            Column("version", String(32), nullable=False),
            Column("value", LargeBinary, nullable=False),
        )
        self._is_ready = False

    async def get(self, name: str) -> VersionedValue | None:
        """Return the value and version of a row, or None if there is no row."""
        return await self._read(lambda connection: self._get(connection, name), None)

    async def put_if_absent(self, name: str, value: bytes) -> str:
        """Insert a row with a new version, if there is none. Return the version."""
        version = new_version()
        row = {"job": self._job, "name": name, "version": version, "value": value}
        statement = text(
            f"INSERT INTO {self._table.name} (job, name, version, value) VALUES (:job, :name, :version, :value)"
            " ON CONFLICT DO NOTHING"
        )

        def put(connection: Connection) -> str:
            for _ in range(_ATTEMPTS):
                if connection.execute(statement, row).rowcount:
                    return version
                current = self._get(connection, name)
                if current is not None and current.version == version:
                    return version  # The response of an earlier commit was lost.
                if current is not None:
                    raise ConflictError(self.place, name, current)
                # The row that refused the insert has been deleted since, so the write is tried again.
            raise StoreUnavailableError(
                f"{name} in {self.place} could not be written: a row of that name exists, but it cannot be read"
            )

        return await self._transaction(put)

    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        """Update the row if it has the version `expected`. Return the new version."""
        version = new_version()
        await self._transaction(lambda connection: self.replace_in(connection, name, value, expected, version))
        return version

    def replace_in(self, connection: Connection, name: str, value: bytes, expected: str, version: str) -> bool:
        """Do `compare_and_set` in the caller's transaction, with `version` as the new version. Call `prepare` before.

        Return False if an earlier attempt has already written this version.

        Raises: ConflictError if the stored value has another version.
        """
        old = self._row(name) & (self._table.c.version == expected)
        if connection.execute(self._table.update().where(old).values(version=version, value=value)).rowcount:
            return True
        current = self._get(connection, name)
        if current is None or current.version != version:
            raise ConflictError(self.place, name, current)
        return False

    async def prepare(self) -> None:
        """Create the table, if it is missing."""
        await self._transaction(lambda connection: None)

    def values_of_others(self, connection: Connection) -> list[tuple[str, bytes]]:
        """Return the values of all other jobs, each with the name of its job. Runs in the caller's transaction. Call `prepare` before."""
        table = self._table.c
        found = connection.execute(select(table.job, table.value).where(table.job != self._job))
        return [(row.job, bytes(row.value)) for row in found]

    async def list(self, prefix: str, *, consistent: bool = True) -> dict[str, VersionedValue]:
        """Return the values whose names have the prefix."""
        table = self._table.c
        wanted = select(table.name, table.value, table.version).where(self._begins_with(prefix))

        def values(connection: Connection) -> dict[str, VersionedValue]:
            rows = {row.name: VersionedValue(bytes(row.value), row.version) for row in connection.execute(wanted)}
            return dict(sorted(rows.items()))

        return await self._read(values, {})

    async def list_versions(self, prefix: str) -> dict[str, str]:
        """Return the version of each name with the prefix. The values are not read."""
        wanted = select(self._table.c.name, self._table.c.version).where(self._begins_with(prefix))

        def versions(connection: Connection) -> dict[str, str]:
            return dict(sorted((row.name, row.version) for row in connection.execute(wanted)))

        return await self._read(versions, {})

    async def list_names(self, prefix: str, before: str | None = None) -> Sequence[str]:
        """Return the names with the prefix, sorted. With `before`, return only those that sort before it.

        They are sorted in Python, because databases sort text by the rules of a language.
        """
        wanted = select(self._table.c.name).where(self._begins_with(prefix))
        names: list[str] = await self._read(lambda connection: [*connection.scalars(wanted)], [])
        return sorted(name for name in names if before is None or name < before)

    async def delete(self, *names: str) -> None:
        """Delete the rows with these names."""
        wanted = (self._table.c.job == self._job) & self._table.c.name.in_(names)
        await self._transaction(lambda connection: connection.execute(self._table.delete().where(wanted)))

    async def end_sessions(self, role: str) -> None:
        """End the job's database sessions with this role, which releases their locks. The store's own session gets the role.

        Only PostgreSQL has such sessions.

        - `role`: what a session does for the job. It is a part of the session's name.
        """
        name = f"{session_prefix(self._table.name, self._job)} {role}"
        self._database.name_session(name)
        await self._database.transaction(lambda connection: end_sessions(connection, name))

    async def close(self) -> None:
        """Close the connection."""
        await self._database.close()

    async def _read(self, work: Callable[[Connection], T], nothing: T) -> T:
        """Return the result of `work`, or `nothing` if there is no table.

        A read creates no table, so that a mistyped URI leaves no database.
        """
        if self._is_ready:
            return await self._transaction(work)
        if not self._database.exists():
            return nothing

        def found(connection: Connection) -> T:
            if not inspect(connection).has_table(self._table.name):
                return nothing
            self._check_columns(connection)
            return work(connection)

        return await self._database.transaction(found)

    async def _transaction(self, work: Callable[[Connection], T]) -> T:
        def prepared(connection: Connection) -> T:
            if not self._is_ready:
                self._create(connection)
            return work(connection)

        result = await self._database.transaction(prepared)
        self._is_ready = True
        return result

    def _create(self, connection: Connection) -> None:
        lock_table_creation(connection, self._table.name)
        self._metadata.create_all(connection)
        self._check_columns(connection)

    def _check_columns(self, connection: Connection) -> None:
        if "version" not in {column["name"] for column in inspect(connection).get_columns(self._table.name)}:
            raise StateError(
                f"{self.place} cannot be read, because an earlier version of recordpublisher wrote it; use that version, or another place"
            )

    def _get(self, connection: Connection, name: str) -> VersionedValue | None:
        table = self._table.c
        row = connection.execute(select(table.value, table.version).where(self._row(name))).one_or_none()
        return None if row is None else VersionedValue(bytes(row.value), row.version)

    def _row(self, name: str) -> Any:
        return (self._table.c.job == self._job) & (self._table.c.name == name)

    def _begins_with(self, prefix: str) -> Any:
        return (self._table.c.job == self._job) & (func.substr(self._table.c.name, 1, len(prefix)) == prefix)
