"""Finds or creates the target table, and inserts rows so that each bad row is identified."""

import logging
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Executable, Insert, Table, cast, literal, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import CompileError, DBAPIError, IntegrityError, StatementError

from recordpublisher.consumer.typed_values import has_fields
from recordpublisher.plugins.databases.error_kinds import is_about_the_row, tells_of_changed_table
from recordpublisher.plugins.databases.postgresql_sessions import lock_table_creation
from recordpublisher.publishers.errors import ConfigurationError, SinkError
from recordpublisher.publishers.properties.groups.sinks import SQL_COLUMNS, SQL_TABLE
from recordpublisher.publishers.records import RecordBatch

from .conversions import cannot_take
from .field_columns import FieldColumns, columns_of_type, columns_of_values
from .latest_by_key import LatestByKey
from .newest_records import NewestRecords
from .rows import (
    IDENTITY,
    METADATA,
    RECORD_COLUMNS,
    Row,
    RowBuilder,
    is_keyed_by_record,
    is_of_fields,
)
from .table_definitions import add_column, create_table, find_table, new_keyed_table, new_table, why_no_column

log = logging.getLogger("recordpublisher.database")
_OF_A_VALUE = (StatementError, ValueError, TypeError, ArithmeticError, RecursionError)
"""The errors of an insert for a value that does not fit its column. Every error of the database is a StatementError, too."""
MOST_EXPLAINED = 100
"""Most rejected rows of one insert for which the wrong column is searched, with one statement for each column."""


class RejectedRowsError(Exception):
    """Raised for rows that the database rejects, where a retry would not help."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        super().__init__(f"{len(rows)} rows are rejected")


class TargetTable:
    """Owns the description of the table, and inserts rows into it.

    - `name`: the table, perhaps with a schema in front.
    - `columns`: the value of `flink.sink.sql.columns`.
    - `value_type`: the type of the values, if it is known.
    - `latest`: the key, if the table keeps the latest row of each key.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        columns: str = "RECORD",
        value_type: Any = None,
        latest: LatestByKey | None = None,
    ) -> None:
        """Find the table or create it.

        Raises: ConfigurationError if the table has no columns, if its schema does not exist, if a field needs a column that cannot be
        added, or if `latest` is given and the table has no unique index of the key.
        """
        self._name, self._columns, self._latest = name, columns, latest
        self._fields_of_type = columns_of_type(value_type)
        if find_table(connection, name) is None:
            create_table(connection, _table_to_create(connection, name, columns, self._fields_of_type, latest))
        self._describe(connection)
        self._newest: NewestRecords | None = None
        if latest is not None:
            latest.check_table(self.table)
            latest.check_index(connection, self.table)
            self._newest = NewestRecords(connection, self.table, latest.key)
        if _needs_columns(self.table, columns):
            self.add_fields(connection, self._fields_of_type)
        if losses := self.rows.losses(connection.dialect.name, self._fields_of_type):
            log.warning(
                "table %s rounds values to the types of its columns, without an error: %s", name, ", ".join(losses)
            )

    def _describe(self, connection: Connection) -> None:
        """Read the columns of the table, and make everything that depends on them. Called again after columns were added."""
        table = find_table(connection, self._name)
        assert table is not None
        self.table = table
        self._dialect = connection.dialect
        self.rows = RowBuilder(
            self.table,
            stores_all=not self._fields_of_type and _needs_columns(self.table, self._columns),
            nan_is_null=connection.dialect.name == "sqlite",
            latest=self._latest,
            declared=self._fields_of_type,
        )
        self._has_deferred = _has_deferred_constraints(connection, self.table)
        self._statement = _insert_statement(self.table, connection.dialect.name)

    def new_fields(self, batches: Sequence[RecordBatch]) -> FieldColumns:
        """Return the fields of the values that need a column and have none.

        Fields of a known type got their columns when the table was opened. A field that cannot have a column is left out, and its record
        is rejected later (see `RowBuilder`).
        """
        if self._fields_of_type or not _needs_columns(self.table, self._columns):
            return {}
        values = [value for batch in batches for value in batch.decoded or ()]
        names = set(self.table.columns.keys())
        fields: FieldColumns = {}
        for name, column in columns_of_values(values, names).items():
            if not why_no_column(self._dialect, name, names | fields.keys()):
                fields[name] = column
        return fields

    def add_fields(self, connection: Connection, fields: FieldColumns) -> None:
        """Add a column for each field that lacks one.

        Raises: ConfigurationError if a column must not or cannot be added, or has the name of a record's own column.
        """
        lock_table_creation(connection, self._name)
        self._describe(connection)
        for name, statement in _statements(connection, self.table, self._columns, fields).items():
            connection.exec_driver_sql(statement)
            log.info("added column %s to table %s", name, self._name)
        self._describe(connection)

    def insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Insert all rows, or with a key, write the newest row of each key.

        Raises: RejectedRowsError if the database rejects rows; it has these rows. SinkError if the table was changed while the job ran.
        """
        rejected: list[Row] = []
        if self._newest is not None:
            rows, rejected = self._newest.select(connection, rows)
            if rejected:
                raise RejectedRowsError(rejected)
            rows = sorted(
                rows, key=lambda row: not row.is_delete
            )  # Deletes come first, because they release values in other unique indexes.
        attempt = connection.begin_nested() if self._has_deferred else None
        self._insert_all(connection, rows, rejected)
        if attempt is not None and not rejected:
            try:
                connection.execute(_CHECK_NOW)
            except DBAPIError as error:
                if not is_about_the_row(error):
                    raise
                attempt.rollback()
                connection.execute(
                    _CHECK_NOW
                )  # Each row is now checked by its own statement, which finds the bad ones.
                self._insert_all(connection, rows, rejected)
        if rejected:
            raise RejectedRowsError(rejected)

    def _insert_all(self, connection: Connection, rows: Sequence[Row], rejected: list[Row]) -> None:
        """Insert all rows that the database accepts, and add the others to `rejected`.

        With a key, a rejected row is tried again after the others, because one of those may have had its value in another unique index.
        """
        left, has_progress = rows, True
        while has_progress:
            refused: list[Row] = []
            for _, same_columns in groupby(left, key=lambda row: (row.is_delete, row.values.keys())):
                self._insert_same_columns(connection, list(same_columns), refused)
            has_progress = self._latest is not None and 0 < len(refused) < len(left)
            again = {(id(row.batch), row.index) for row in refused}
            left = [row for row in left if (id(row.batch), row.index) in again]
        rejected += refused

    def _insert_same_columns(self, connection: Connection, rows: list[Row], rejected: list[Row]) -> None:
        """Insert rows with the same columns. A rejected group is halved until the bad rows are found, with few statements for each."""
        try:
            with connection.begin_nested():
                connection.execute(self._statement_for(rows[0]), [row.values for row in rows])
        except _OF_A_VALUE as error:
            if tells_of_changed_table(error):
                reason = f"table {self._name} was changed while the job runs: {_message(error)}"
                raise SinkError(f"{reason}; a restart reads its columns again") from error
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

    def _statement_for(self, row: Row) -> Executable:
        if self._latest is None:
            return self._statement
        if row.is_delete:
            return self._latest.delete(self.table)
        return self._latest.upsert(self.table, self._dialect.name, row.values.keys())

    def _reason(self, connection: Connection, row: Row, error: Exception) -> str:
        """Return why the database rejects a row. Each value is cast to the type of its column in turn, which finds the wrong one."""
        value = row.record.values[0]
        fields = value if isinstance(value, dict) else {}
        for name, item in row.values.items():
            length = getattr(
                self.table.columns[name].type, "length", None
            )  # checked here because PostgreSQL's CAST truncates a text
            if isinstance(item, str) and length is not None and len(item) > length:
                return f"{_message(error)}: {cannot_take(self.table.columns[name], item)}"
        given = {} if isinstance(error, IntegrityError) else row.values
        for column in map(self.table.columns.__getitem__, given):
            try:
                with connection.begin_nested():
                    connection.execute(select(cast(literal(given[column.name], column.type), column.type)))
            except CompileError:  # a type that SQLAlchemy does not know, such as xml
                continue
            except _OF_A_VALUE as refused:
                if not is_about_the_row(refused):
                    raise
                return cannot_take(column, fields.get(column.name, given[column.name]))
        is_object = isinstance(value, dict) or has_fields(value) or is_keyed_by_record(self.table)
        return f"{_message(error)}; its value is {'' if is_object else 'no JSON object but '}{value!r:.100}"


def check_fields(
    connection: Connection, name: str, columns: str, value_type: Any, latest: LatestByKey | None = None
) -> str:
    """Return in words what a job with values of this type would find when it opens the table. Nothing is changed.

    Raises: ConfigurationError if `TargetTable` would raise it, or if no column of the table matches a value.
    """
    fields, found = columns_of_type(value_type), find_table(connection, name)
    table = _table_to_create(connection, name, columns, fields, latest) if found is None else found
    if latest is not None:
        latest.check_table(table)
        if found is not None:
            latest.check_index(connection, table)
    if _needs_columns(table, columns):
        _statements(connection, table, columns, fields)
    if found is None or _needs_columns(table, columns) or not fields:
        return f"{name} {'will be created' if found is None else 'is there'}"
    unstored = RowBuilder(table).unstored(fields)
    if unstored is None:
        valid = f"a table with columns of the fields {', '.join(fields)}"
        raise ConfigurationError(SQL_TABLE.key, name, valid, reason="no column of the table matches a value")
    return f"{name} has no column for {', '.join(unstored)}, which is not stored" if unstored else f"{name} fits"


def _table_to_create(
    connection: Connection, name: str, columns: str, fields: FieldColumns, latest: LatestByKey | None
) -> Table:
    if latest is not None:
        return new_keyed_table(connection, name, fields, latest.key)
    return new_table(name, METADATA if columns != "RECORD" or fields else RECORD_COLUMNS.keys())


def _needs_columns(table: Table, columns: str) -> bool:
    """Return whether each field must have a column."""
    return columns != "RECORD" or is_of_fields(table)


def _statements(connection: Connection, table: Table, columns: str, fields: FieldColumns) -> dict[str, str]:
    """Return the statement that adds a column, for each field without one.

    Columns may be added if `columns` is EVOLVE, or if the sink created the table and it has no columns for fields yet.

    Raises: ConfigurationError if a column is missing and must not be added, in which case the error names the statement to run; if a
    field cannot have a column; or if a field has the name of one of the record's own columns.
    """
    if is_of_fields(table) and (
        taken := sorted(fields.keys() & METADATA)
    ):  # these columns hold the record's own metadata
        reason = f"field '{taken[0]}' of a value has the name of a column of the record"
        valid = "a table of your own, in which fields come first"
        raise ConfigurationError(SQL_TABLE.key, table.fullname, valid, reason=reason)
    may_add = columns == "EVOLVE" or (is_of_fields(table) and set(table.columns.keys()) == METADATA)
    statements: dict[str, str] = {}
    for name in [name for name in fields if name not in table.columns]:
        if reason := why_no_column(connection.dialect, name, {*table.columns.keys(), *statements}):
            reason = f"field {name!r} of a value cannot have a column: {reason}"
            raise ConfigurationError(SQL_TABLE.key, table.fullname, "a table of your own", reason=reason)
        statements[name] = add_column(connection, table, name, fields[name])
        if not may_add:
            reason = f"table {table.fullname} has no column for field '{name}' of a value: run {statements[name]}"
            raise ConfigurationError(SQL_COLUMNS.key, columns, "EVOLVE, which adds the column", reason=reason)
    return statements


def _insert_statement(table: Table, dialect: str) -> Insert:
    """Return the INSERT statement. A table keyed by record keeps each record once, however often it is inserted.

    The statement ignores conflicts of this key only. A row that violates another unique index is a bad record, and must not be
    ignored silently.
    """
    if not is_keyed_by_record(table):
        return table.insert()
    insert = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    return insert.on_conflict_do_nothing(index_elements=IDENTITY)


_CHECK_NOW = text("SET CONSTRAINTS ALL IMMEDIATE")


def _has_deferred_constraints(connection: Connection, table: Table) -> bool:
    """Return whether the database checks a constraint only when the transaction ends, when it no longer names the wrong row."""
    if connection.dialect.name != "postgresql":
        return False
    name = connection.dialect.identifier_preparer.format_table(table)
    found = text("SELECT count(*) FROM pg_constraint WHERE condeferred AND conrelid = to_regclass(:name)")
    return bool(connection.scalar(found, {"name": name}))


def _message(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    text = str(cause).partition("\nCONTEXT:")[
        0
    ]  # The context is a place in the statement, which says nothing about the record.
    return f"{type(cause).__name__}: {' '.join(text.split())}"
