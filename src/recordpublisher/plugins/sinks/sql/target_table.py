"""The target table: found or created, given new columns, and filled with rows so that each bad row is identified."""

import logging
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Executable,
    Insert,
    MetaData,
    Table,
    cast,
    inspect,
    literal,
    select,
    text,
    types,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import CompileError, DBAPIError, IntegrityError, StatementError
from sqlalchemy.schema import CreateColumn

from recordpublisher.consumer.typed_values import has_fields
from recordpublisher.plugins.databases import is_about_the_row, is_of_changed_table, lock_table_creation
from recordpublisher.publishers.errors import ConfigurationError, SinkError
from recordpublisher.publishers.properties.sink_properties import SQL_COLUMNS, SQL_KEY, SQL_TABLE
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.safe_text import few_of, repr_of

from .column_types import FieldColumns, can_be_widened_to, columns_of_type, columns_of_values, why_rejected
from .latest_by_key import LatestByKey
from .newest_records import NewestRecords
from .rows import (
    IDENTITY,
    METADATA,
    RECORD_COLUMNS,
    Row,
    RowBuilder,
    is_filled_by_database,
    is_generated,
    is_keyed_by_record,
    is_made_for_fields,
    record_columns,
)

log = logging.getLogger("recordpublisher.database")
columns_log = logging.getLogger("recordpublisher.columns")
"""`recordpublisher run` shows the INFO lines of this logger."""
_OF_A_VALUE = (StatementError, ValueError, TypeError, ArithmeticError, RecursionError)
"""The errors of an insert for a value that does not fit its column. Every error of the database is also a StatementError."""
MOST_EXPLAINED = 100
"""For at most this many rejected rows of one insert the wrong column is found. That takes one statement for each column."""
_MOST_COLUMNS = {"postgresql": 1600, "sqlite": 2000}
_LONGEST_NAME = 63
"""Most bytes (UTF-8) of a name in PostgreSQL, which truncates a longer one."""
_SYSTEM_COLUMNS = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")


class TargetTable:
    """Finds or creates the table of the sink, adds columns to it, and inserts rows.

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
        first: Sequence[RecordBatch] = (),
    ) -> None:
        """Find the table or create it. `first`: records whose fields are columns of a new table, if the values have no type.

        Raises: ConfigurationError in these cases:

        - The table has no columns, or its schema does not exist.
        - A field needs a column that cannot be added.
        - `latest` is given, and the table has no unique index of the key.
        """
        self._name, self._columns, self._latest = name, columns, latest
        self._has_warned = False
        self._fields_of_type = columns_of_type(value_type)
        if latest is not None:
            latest.check_fields(self._fields_of_type)
        if find_table(connection, name) is None:
            lock_table_creation(connection, name)
        # Workers that start together all find no table, and one of them creates it.
        if find_table(connection, name) is None:
            fields = self._fields_of_type or _fields_of(connection.dialect, first, set())
            create_table(connection, _table_to_create(connection, name, columns, fields, latest))
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
                "table %s rounds values to the types of its columns, without an error: %s", name, few_of(losses)
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

        If the class of the values is declared, there are none, because its fields got their columns when the table was opened. A field that
        cannot have a column is left out, and its record is rejected later (see `RowBuilder`).
        """
        if not _needs_columns(self.table, self._columns):
            self._warn_of_lost_fields(batches)
            return {}
        if self._fields_of_type:
            return {}
        return _fields_of(self._dialect, batches, set(self.table.columns.keys()))

    def _warn_of_lost_fields(self, batches: Sequence[RecordBatch]) -> None:
        """Log once which fields are not stored. A column that was renamed would otherwise stay empty without a word."""
        if self._has_warned:
            return
        # The first record of each batch is enough, because most records of a stream have the same fields.
        firsts = [batch.values[0] for batch in batches if len(batch)]
        names = self._fields_of_type or {name for each in firsts if isinstance(each, dict) for name in each}
        if lost := self.rows.lost([name for name in names if isinstance(name, str)]):
            self._has_warned = True
            log.warning(
                "table %s has no column for %s: the values of %s are not stored. Add columns (%s=EVOLVE does it), or a column 'value', "
                "which stores whole records",
                self._name,
                few_of([f"'{name}'" for name in lost]),
                "this field" if len(lost) == 1 else "these fields",
                SQL_COLUMNS.key,
            )

    def add_fields(self, connection: Connection, fields: FieldColumns) -> None:
        """Add a column for each field that lacks one.

        Raises: ConfigurationError if a column must not or cannot be added, or has the name of a column of record metadata.
        """
        lock_table_creation(connection, self._name)
        self._describe(connection)
        for statement in _statements(connection, self.table, self._columns, fields).values():
            connection.exec_driver_sql(statement)
            columns_log.info("new or wider column of table %s: %s", self._name, statement)
        self._describe(connection)

    def insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Insert all rows. In a table with a key, write the newest row of each key instead.

        Raises: RejectedRowsError, which has the rows, if the database rejects rows; SinkError if the table was changed while the job ran.
        """
        rejected: list[Row] = []
        if self._newest is not None:
            rows, rejected = self._newest.select(connection, rows)
            if rejected:
                raise RejectedRowsError(rejected)
            # Deletes come first, because they release values in other unique indexes.
            rows = sorted(rows, key=lambda row: not row.is_delete)
        attempt = connection.begin_nested() if self._has_deferred else None
        self._insert_all(connection, rows, rejected)
        if attempt is not None and not rejected:
            try:
                connection.execute(_CHECK_NOW)
            except DBAPIError as error:
                if not is_about_the_row(error):
                    raise
                attempt.rollback()
                # Each row is now checked by its own statement, which finds the bad ones.
                connection.execute(_CHECK_NOW)
                self._insert_all(connection, rows, rejected)
        if rejected:
            self._refuse_changed_table(connection)
            raise RejectedRowsError(rejected)

    def _refuse_changed_table(self, connection: Connection) -> None:
        """Compare the table with the columns that the sink has read.

        Raises: SinkError if a change makes the table refuse rows that fitted before. With the policy SKIP every record would otherwise be
        skipped.
        """
        there = find_table(connection, self._name)
        for column in () if there is None else there.columns:
            if reason := _why_refusing(column, self.table.columns.get(column.name)):
                raise self._changed(f"column '{column.name}' {reason}")

    def _changed(self, what: str) -> SinkError:
        reason = f"table {self._name} was changed while the job runs: {what}"
        return SinkError(f"{reason}. Start the job again, which reads the table's columns again")

    def _insert_all(self, connection: Connection, rows: Sequence[Row], rejected: list[Row]) -> None:
        """Insert all rows that the database accepts, and add the others to `rejected`.

        With a key, a rejected row is tried again after the other rows, because one of these may free a value that the rejected row needs
        in another unique index.
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
            if is_of_changed_table(error):
                raise self._changed(_message(error)) from error
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
                return f"{_message(error)}: {why_rejected(self.table.columns[name], item)}"
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
                return why_rejected(column, fields.get(column.name, given[column.name]))
        is_object = isinstance(value, dict) or has_fields(value) or is_keyed_by_record(self.table)
        return f"{_message(error)}; its value is {'' if is_object else 'not a JSON object but '}{repr_of(value)}"


def check_fields(
    connection: Connection, name: str, columns: str, value_type: Any, latest: LatestByKey | None = None
) -> str:
    """Return in words what a job with values of this type would find when it opens the table. Nothing is changed.

    Raises: ConfigurationError if `TargetTable` would raise one, or if no column of the table matches a value.
    """
    fields, found = columns_of_type(value_type), find_table(connection, name)
    if has_unknown_key(connection, name, columns, value_type, latest):
        return f"{name} will be created when the first records show the type of its key"
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
        valid = f"a table with columns of the fields {few_of([*fields])}"
        raise ConfigurationError(SQL_TABLE.key, name, valid, reason="no column of the table matches a value")
    return f"{name} does not store fields without a column: {few_of(unstored)}" if unstored else f"{name} fits"


def has_unknown_key(
    connection: Connection,
    name: str,
    columns: str,
    value_type: Any,
    latest: LatestByKey | None,
    first: Sequence[RecordBatch] = (),
) -> bool:
    """Return whether the table cannot be created yet, because the type of a key column is not known.

    `first`: the first records. If values have no type, the fields of these records show the types of the key columns.
    """
    if latest is None or columns == "RECORD" or find_table(connection, name) is not None:
        return False
    known = columns_of_type(value_type) or _fields_of(connection.dialect, first, set())
    return not {*latest.key} <= METADATA | known.keys()


def _fields_of(dialect: Dialect, batches: Sequence[RecordBatch], names: set[str]) -> FieldColumns:
    """Return the columns for fields of values that are not among `names`, without those that cannot have a column."""
    values = [value for batch in batches for value in batch.decoded or ()]
    fields: FieldColumns = {}
    for name, column in columns_of_values(values, names).items():
        if not why_no_column(dialect, name, names | fields.keys()):
            fields[name] = column
    return fields


def _table_to_create(
    connection: Connection, name: str, columns: str, fields: FieldColumns, latest: LatestByKey | None
) -> Table:
    if latest is not None:
        return new_keyed_table(connection, name, fields, latest.key)
    return new_table(name, METADATA if columns != "RECORD" or fields else RECORD_COLUMNS.keys())


def _needs_columns(table: Table, columns: str) -> bool:
    """Return whether each field must have a column. `columns`: the value of `flink.sink.sql.columns`."""
    return columns != "RECORD" or is_made_for_fields(table)


def _statements(connection: Connection, table: Table, columns: str, fields: FieldColumns) -> dict[str, str]:
    """Return, for each field without a column or with a column of a narrower type, the statement that adds or widens the column.

    Only PostgreSQL widens columns, because SQLite's columns hold every number.

    Columns may be added if `columns` is EVOLVE, or if the sink created the table and it has no columns for fields yet.

    Raises: ConfigurationError in these cases:

    - A column is missing or too narrow, and must not be changed. The error names the statement to run.
    - A field cannot have a column, or has the name of a column of record metadata.
    """
    if is_made_for_fields(table) and (
        taken := sorted(fields.keys() & METADATA)
    ):  # these columns hold the record's own metadata
        reason = f"field '{taken[0]}' of a value has the name of a metadata column"
        valid = "a table that you have created, in which fields take precedence"
        raise ConfigurationError(SQL_TABLE.key, table.fullname, valid, reason=reason)
    may_add = columns == "EVOLVE" or (is_made_for_fields(table) and set(table.columns.keys()) == METADATA)
    statements: dict[str, str] = {}
    for name in [name for name in fields if name not in table.columns]:
        if reason := why_no_column(connection.dialect, name, {*table.columns.keys(), *statements}):
            reason = f"field {name!r} of a value cannot have a column: {reason}"
            raise ConfigurationError(SQL_TABLE.key, table.fullname, "a table of your own", reason=reason)
        statements[name] = add_column(connection, table, name, fields[name])
        if not may_add:
            reason = f"table {table.fullname} has no column for field '{name}' of a value: run {statements[name]}"
            raise ConfigurationError(SQL_COLUMNS.key, columns, "EVOLVE, which adds the column", reason=reason)
    narrow = [
        name for name, of in fields.items() if name in table.columns and can_be_widened_to(table.columns[name].type, of)
    ]
    for name in narrow if connection.dialect.name == "postgresql" else ():
        statement = widen_column(connection, table, name, fields[name])
        if columns == "EVOLVE":
            statements[name] = statement
        elif is_made_for_fields(table):
            reason = f"column '{name}' of table {table.fullname} is narrower than the field of a value: run {statement}"
            raise ConfigurationError(SQL_COLUMNS.key, columns, "EVOLVE, which widens the column", reason=reason)
    return statements


def _why_refusing(column: Column[Any], known: Column[Any] | None) -> str:
    """Return how a column was changed, if the table may now refuse rows that fitted before. Return "" for any other change.

    Other workers of the job add columns that may be empty, and widen types. Such a change refuses no row.

    - `known`: the column as the sink read it before; None if it is new.
    """
    is_needed = not column.nullable and not is_filled_by_database(column)
    if known is None:
        return "was added and must have a value" if is_needed else ""
    if is_generated(column) and not is_generated(known):
        return "is generated by the database now"
    if is_needed and known.nullable:
        return "must have a value now"
    if str(column.type) != str(known.type) and not can_be_widened_to(known.type, column.type):
        return f"was {str(known.type).lower()} and is {str(column.type).lower()} now"
    return ""


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
    """Return whether the database checks a constraint only at the end of the transaction, so that its error names no row."""
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


class RejectedRowsError(Exception):
    """Raised for rows that the database rejects, where a retry would not help."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        super().__init__(f"{len(rows)} rows are rejected")


# --- the definition of the table --------------------------------------------------------------------------------------------------


def find_table(connection: Connection, name: str) -> Table | None:
    """Return the table, or None if it is missing. Raises: ConfigurationError if it has no columns, or its schema does not exist."""
    schema, _, table = name.rpartition(".")
    schemas = inspect(connection).get_schema_names() if schema else []
    if schema and schema not in schemas:
        reason = f"there is no schema '{schema}'; there are {few_of(sorted(schemas))}"
        raise ConfigurationError(SQL_TABLE.key, name, "TABLE, or SCHEMA.TABLE of a schema that exists", reason=reason)
    if not inspect(connection).has_table(table, schema=schema or None):
        return None
    found = Table(table, MetaData(schema=schema or None), autoload_with=connection)
    for column in found.columns:
        while isinstance(column.type, postgresql.DOMAIN):
            # Values are converted and checked by the type below the domain. The database checks the domain's own constraints.
            column.type = column.type.data_type
        if isinstance(column.type, types.JSON):
            column.type.none_as_null = True  # a field that is missing is NULL, not the null of JSON
    if not len(found.columns):
        raise ConfigurationError(SQL_TABLE.key, name, "a table with columns", reason="the table has none")
    return found


def new_table(name: str, columns: Collection[str]) -> Table:
    """Return a table with these columns of a record. It is not created yet."""
    schema, _, table = name.rpartition(".")
    wanted = [column for column in record_columns() if column.name in columns]
    return Table(table, MetaData(schema=schema or None), *wanted)


def new_keyed_table(connection: Connection, name: str, fields: FieldColumns, key: Sequence[str]) -> Table:
    """Return a table for these fields and a record's metadata, with `key` as its primary key. It is not created yet.

    Raises: ConfigurationError if a field of the key is unknown, or a field cannot have a column.
    """
    metadata = [column for column in record_columns() if column.name in METADATA - fields.keys()]
    wanted = {column.name: column.type for column in metadata} | fields
    if missing := [each for each in key if each not in wanted]:
        reason = f"table {name} is missing, and the type of '{missing[0]}', a field of its key, is not known"
        valid = "a payload with a type, or a table that exists, with this key as its primary key"
        raise ConfigurationError(SQL_KEY.key, ",".join(key), valid, reason=reason)
    columns: list[str] = []
    for each in wanted:
        if reason := why_no_column(connection.dialect, each, columns):
            reason = f"field {each!r} of a value cannot have a column: {reason}"
            raise ConfigurationError(SQL_TABLE.key, name, "a table of your own", reason=reason)
        columns.append(each)
    schema, _, table = name.rpartition(".")
    made = (Column(each, of, primary_key=each in key, autoincrement=False) for each, of in wanted.items())
    return Table(table, MetaData(schema=schema or None), *made)


def create_table(connection: Connection, table: Table) -> None:
    """Create a table. Raises: ConfigurationError if its name is too long."""
    name = table.fullname
    # SQLAlchemy counts characters instead of bytes, and PostgreSQL would cut the name off.
    if connection.dialect.name == "postgresql" and len(table.name.encode()) > _LONGEST_NAME:
        valid = f"a table name of at most {_LONGEST_NAME} bytes"
        raise ConfigurationError(SQL_TABLE.key, name, valid, reason=f"it has more than {_LONGEST_NAME} bytes")
    table.create(connection)
    log.info("created table %s, which was missing", name)


def add_column(connection: Connection, table: Table, name: str, column: types.TypeEngine[Any]) -> str:
    """Return the statement that adds a column."""
    dialect = connection.dialect
    added = CreateColumn(Column(name, column)).compile(dialect=dialect)
    return f"ALTER TABLE {dialect.identifier_preparer.format_table(table)} ADD COLUMN {added}"


def widen_column(connection: Connection, table: Table, name: str, of: types.TypeEngine[Any]) -> str:
    """Return the statement that gives a column a wider type."""
    preparer = connection.dialect.identifier_preparer
    kind = of.compile(dialect=connection.dialect)
    return f"ALTER TABLE {preparer.format_table(table)} ALTER COLUMN {preparer.quote(name)} TYPE {kind}"


def why_no_column(dialect: Dialect, name: object, columns: Collection[str]) -> str:
    """Return why a table with these columns cannot have another column of this name; an empty text if it can."""
    if not isinstance(name, str) or not name:  # A function of the user may make objects whose names are not texts.
        return "its name is empty" if name == "" else "its name is not a text"
    is_postgresql = dialect.name == "postgresql"
    if "\0" in name or any("\ud800" <= character <= "\udfff" for character in name):
        return "its name has a NUL" if "\0" in name else "its name has half a surrogate pair"
    if is_postgresql and len(name.encode()) > _LONGEST_NAME:
        return f"its name has more than {_LONGEST_NAME} bytes"
    if is_postgresql and name in _SYSTEM_COLUMNS:
        return "PostgreSQL has a system column of this name"
    if not is_postgresql and (twins := [each for each in columns if _lower(each) == _lower(name)]):
        return f"its name differs from that of column '{twins[0]}' in case only"
    most = _MOST_COLUMNS.get(dialect.name)
    return "" if most is None or len(columns) < most else f"a table has at most {most} columns"


def _lower(name: str) -> bytes:
    """Return the name as SQLite compares names: it ignores case, but only of ASCII letters."""
    return name.encode(errors="surrogatepass").lower()
