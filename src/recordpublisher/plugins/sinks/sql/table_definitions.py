"""Finds and creates the table of rows, and makes the statement that adds a column to it."""

import logging
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Column, Connection, MetaData, Table, inspect, types
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import IdentifierError
from sqlalchemy.schema import CreateColumn

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.sinks import SQL_KEY, SQL_TABLE

from .field_columns import FieldColumns
from .rows import METADATA, record_columns

log = logging.getLogger("recordpublisher.database")
_MOST_COLUMNS = {"postgresql": 1600, "sqlite": 2000}
_LONGEST_NAME = 63
"""Most bytes (UTF-8) of a name in PostgreSQL, which truncates a longer one."""
_SYSTEM_COLUMNS = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")


def find_table(connection: Connection, name: str) -> Table | None:
    """Return the table, or None if it is missing. Raises: ConfigurationError if it has no columns, or its schema does not exist."""
    schema, _, table = name.rpartition(".")
    schemas = inspect(connection).get_schema_names() if schema else []
    if schema and schema not in schemas:
        reason = f"there is no schema '{schema}'; there are {', '.join(sorted(schemas))}"
        raise ConfigurationError(SQL_TABLE.key, name, "a table, or a schema that exists and a table", reason=reason)
    if not inspect(connection).has_table(table, schema=schema or None):
        return None
    found = Table(table, MetaData(schema=schema or None), autoload_with=connection)
    for column in found.columns:
        if isinstance(column.type, types.JSON):
            column.type.none_as_null = True  # a field that is missing is NULL, not the null of JSON
    if not len(found.columns):
        raise ConfigurationError(SQL_TABLE.key, name, "a table with columns")
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
    try:
        table.create(connection)
    except IdentifierError as error:
        valid = "a shorter name, or a table that exists"
        raise ConfigurationError(SQL_TABLE.key, name, valid, reason=str(error)) from error
    log.info("created table %s, which was missing", name)


def add_column(connection: Connection, table: Table, name: str, column: types.TypeEngine[Any]) -> str:
    """Return the statement that adds a column."""
    dialect = connection.dialect
    added = CreateColumn(Column(name, column)).compile(dialect=dialect)
    return f"ALTER TABLE {dialect.identifier_preparer.format_table(table)} ADD COLUMN {added}"


def why_no_column(dialect: Dialect, name: str, columns: Collection[str]) -> str:
    """Return why a table with these columns cannot have another one of this name; empty if it can."""
    is_postgresql = dialect.name == "postgresql"
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        return "its name has half a surrogate pair"
    if not name or "\0" in name:
        return "its name has a NUL" if name else "its name is empty"
    if is_postgresql and length > _LONGEST_NAME:
        return f"its name has more than {_LONGEST_NAME} bytes"
    if is_postgresql and name in _SYSTEM_COLUMNS:
        return "PostgreSQL has a system column of this name"
    if not is_postgresql and (twins := [each for each in columns if _lower(each) == _lower(name)]):
        return f"its name differs from that of column '{twins[0]}' in case only"
    most = _MOST_COLUMNS.get(dialect.name)
    return "" if most is None or len(columns) < most else f"a table has at most {most} columns"


def _lower(name: str) -> bytes:
    """Return the name as SQLite compares it: it ignores the case of ASCII letters only."""
    return name.encode(errors="surrogatepass").lower()
