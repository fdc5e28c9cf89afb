"""Target: the table that rows go to, found or made, and how rows are inserted so that a bad one is known by name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from sqlalchemy import Connection, Insert, MetaData, Table, inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, StatementError

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.table import SQL_TABLE

from .rows import Row, RowMaker, is_of_records, record_columns


class RefusedRowsError(Exception):
    """The database will never take these rows."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        super().__init__(f"{len(rows)} rows are refused")


class Target:
    """Owns the table's description. `name` may begin with a schema."""

    def __init__(self, connection: Connection, name: str) -> None:
        """Look the table up, or make it. Raises: ConfigurationError for a table without columns."""
        schema, _, table = name.rpartition(".")
        metadata = MetaData(schema=schema or None)
        if inspect(connection).has_table(table, schema=schema or None):
            self.table = Table(table, metadata, autoload_with=connection)
        else:
            self.table = Table(table, metadata, *record_columns())
            self.table.create(connection)
        if not len(self.table.columns):
            raise ConfigurationError(SQL_TABLE.key, name, "a table with columns")
        self.rows = RowMaker(self.table)
        self._statement = _insertion(self.table, connection.dialect.name)

    def insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Insert all rows. Raises: RefusedRowsError when the database takes the others only."""
        refused: list[Row] = []
        for _, alike in groupby(rows, key=lambda row: row.values.keys()):
            self._insert_alike(connection, list(alike), refused)
        if refused:
            raise RefusedRowsError(refused)

    def _insert_alike(self, connection: Connection, rows: list[Row], refused: list[Row]) -> None:
        """Halve what is refused until the bad row stands alone: a few statements for each of them, none for the good."""
        try:
            with connection.begin_nested():
                connection.execute(self._statement, [row.values for row in rows])
        except (StatementError, ValueError, TypeError, OverflowError) as error:
            if not _is_about_the_row(error):
                raise
            if len(rows) == 1:
                refused.append(Row(rows[0].batch, rows[0].index, {}, _words(error)))
                return
            middle = len(rows) // 2
            self._insert_alike(connection, rows[:middle], refused)
            self._insert_alike(connection, rows[middle:], refused)


def _insertion(table: Table, dialect: str) -> Insert:
    """Into a table keyed by the record's identity the same record goes once, however often it comes."""
    if not is_of_records(table):
        return table.insert()
    made = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    return made.on_conflict_do_nothing()


def _is_about_the_row(error: Exception) -> bool:
    return isinstance(error, (DataError, IntegrityError)) or not isinstance(error, DBAPIError)


def _words(error: Exception) -> str:
    told = getattr(error, "orig", None) or error
    return f"{type(told).__name__}: {' '.join(str(told).split())}"
