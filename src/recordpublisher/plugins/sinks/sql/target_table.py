"""TargetTable: finds or creates the table, and inserts rows so that each bad row is identified."""

import logging
from collections.abc import Sequence
from itertools import groupby

from sqlalchemy import Connection, Insert, MetaData, Table, cast, inspect, literal, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, IdentifierError, IntegrityError, StatementError

from recordpublisher.plugins.stores.sql.error_kinds import is_about_the_row
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.sinks import SQL_TABLE

from .rows import Row, RowBuilder, cannot_take, is_keyed_by_record, record_columns

log = logging.getLogger("recordpublisher.database")
_OF_A_VALUE = (StatementError, ValueError, TypeError, ArithmeticError)
"""What an insert raises for a value that its column does not take; StatementError: every error of the database, too."""
MOST_EXPLAINED = 100
"""Rejected rows of one insert whose column is looked for: that costs a statement for each column."""


class RejectedRowsError(Exception):
    """The database rejects these rows; a retry would not help."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        super().__init__(f"{len(rows)} rows are rejected")


class TargetTable:
    """Owns the table's description. `name` may begin with a schema."""

    def __init__(self, connection: Connection, name: str) -> None:
        """Find the table or create it. Raises: ConfigurationError for a table without columns, or of a schema that does not exist."""
        found = find_table(connection, name)
        self.table = _create_table(connection, name) if found is None else found
        self.rows = RowBuilder(self.table)
        self._has_deferred = _has_deferred_constraints(connection, self.table)
        self._statement = _insert_statement(self.table, connection.dialect.name)

    def insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Insert all rows. Raises: RejectedRowsError with the rows that the database rejects."""
        rejected: list[Row] = []
        attempt = connection.begin_nested() if self._has_deferred else None
        self._insert_all(connection, rows, rejected)
        if attempt is not None and not rejected:
            try:
                connection.execute(_CHECK_NOW)
            except DBAPIError as error:
                if not is_about_the_row(error):
                    raise
                attempt.rollback()
                connection.execute(_CHECK_NOW)  # each row is checked with its own statement, which shows the bad ones
                self._insert_all(connection, rows, rejected)
        if rejected:
            raise RejectedRowsError(rejected)

    def _insert_all(self, connection: Connection, rows: Sequence[Row], rejected: list[Row]) -> None:
        for _, same_columns in groupby(rows, key=lambda row: row.values.keys()):
            self._insert_same_columns(connection, list(same_columns), rejected)

    def _insert_same_columns(self, connection: Connection, rows: list[Row], rejected: list[Row]) -> None:
        """Insert rows with the same columns. A rejected group is halved until the bad rows are found: a few statements for each."""
        try:
            with connection.begin_nested():
                connection.execute(self._statement, [row.values for row in rows])
        except _OF_A_VALUE as error:
            if not is_about_the_row(error):
                raise
            if len(rows) == 1:
                is_explained = len(rejected) < MOST_EXPLAINED
                reason = self._reason(connection, rows[0], error) if is_explained else _message(error)
                rejected.append(Row(rows[0].batch, rows[0].index, {}, reason))
                return
            middle = len(rows) // 2
            self._insert_same_columns(connection, rows[:middle], rejected)
            self._insert_same_columns(connection, rows[middle:], rejected)

    def _reason(self, connection: Connection, row: Row, error: Exception) -> str:
        """Why the database rejects a row. Each value is converted to the type of its column alone, which shows the wrong one."""
        value = row.record.value_column[0]
        fields = value if isinstance(value, dict) else {}
        given = {} if isinstance(error, IntegrityError) else row.values
        for column in map(self.table.columns.__getitem__, given):
            try:
                with connection.begin_nested():
                    connection.execute(select(cast(literal(given[column.name], column.type), column.type)))
            except _OF_A_VALUE as refused:
                if not is_about_the_row(refused):
                    raise
                return cannot_take(column, fields.get(column.name, given[column.name]))
        is_object = isinstance(value, dict) or is_keyed_by_record(self.table)
        return _message(error) if is_object else f"its value is no JSON object but {value!r:.100}: {_message(error)}"


def find_table(connection: Connection, name: str) -> Table | None:
    """The table, if it is there. Raises: ConfigurationError for one without columns, or of a schema that does not exist."""
    schema, _, table = name.rpartition(".")
    schemas = inspect(connection).get_schema_names() if schema else []
    if schema and schema not in schemas:
        reason = f"there is no schema '{schema}'; there are {', '.join(sorted(schemas))}"
        raise ConfigurationError(SQL_TABLE.key, name, "a table, or a schema that exists and a table", reason=reason)
    if not inspect(connection).has_table(table, schema=schema or None):
        return None
    found = Table(table, MetaData(schema=schema or None), autoload_with=connection)
    if not len(found.columns):
        raise ConfigurationError(SQL_TABLE.key, name, "a table with columns")
    return found


def _create_table(connection: Connection, name: str) -> Table:
    schema, _, table = name.rpartition(".")
    created = Table(table, MetaData(schema=schema or None), *record_columns())
    try:
        created.create(connection)
    except IdentifierError as error:
        valid = "a shorter name, or a table that exists"
        raise ConfigurationError(SQL_TABLE.key, name, valid, reason=str(error)) from error
    log.info("created table %s, which was missing", name)
    return created


def _insert_statement(table: Table, dialect: str) -> Insert:
    """A table keyed by record takes each record once, however often it is inserted."""
    if not is_keyed_by_record(table):
        return table.insert()
    insert = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    return insert.on_conflict_do_nothing()


_CHECK_NOW = text("SET CONSTRAINTS ALL IMMEDIATE")


def _has_deferred_constraints(connection: Connection, table: Table) -> bool:
    """Whether the database checks some constraints only when the transaction ends, where nobody knows which row was wrong."""
    if connection.dialect.name != "postgresql":
        return False
    name = connection.dialect.identifier_preparer.format_table(table)
    found = text("SELECT count(*) FROM pg_constraint WHERE condeferred AND conrelid = to_regclass(:name)")
    return bool(connection.scalar(found, {"name": name}))


def _message(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    text = str(cause).partition("\nCONTEXT:")[0]  # where in the statement: it says nothing about the record
    return f"{type(cause).__name__}: {' '.join(text.split())}"
