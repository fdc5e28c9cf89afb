"""Finds and creates the table of rows, and says how a column is added to it."""

import logging
from collections.abc import Collection
from typing import Any

from sqlalchemy import Column, Connection, MetaData, Table, inspect, types
from sqlalchemy.exc import IdentifierError
from sqlalchemy.schema import CreateColumn

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.sinks import SQL_TABLE

from .rows import record_columns

log = logging.getLogger("recordpublisher.database")


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
    for column in found.columns:
        if isinstance(column.type, types.JSON):
            column.type.none_as_null = True  # a field that is missing is NULL, not the null of JSON
    if not len(found.columns):
        raise ConfigurationError(SQL_TABLE.key, name, "a table with columns")
    return found


def new_table(name: str, columns: Collection[str]) -> Table:
    """A table with these columns of a record, which is not created yet."""
    schema, _, table = name.rpartition(".")
    wanted = [column for column in record_columns() if column.name in columns]
    return Table(table, MetaData(schema=schema or None), *wanted)


def create_table(connection: Connection, table: Table) -> None:
    """Create it. Raises: ConfigurationError for a name that is too long."""
    name = table.fullname
    try:
        table.create(connection)
    except IdentifierError as error:
        valid = "a shorter name, or a table that exists"
        raise ConfigurationError(SQL_TABLE.key, name, valid, reason=str(error)) from error
    log.info("created table %s, which was missing", name)


def add_column(connection: Connection, table: Table, name: str, column: types.TypeEngine[Any]) -> str:
    """The statement that adds a column. Raises: ConfigurationError for a name that is too long."""
    dialect = connection.dialect
    try:
        dialect.validate_identifier(name)
    except IdentifierError as error:
        raise ConfigurationError(SQL_TABLE.key, table.name, "a table of your own", reason=str(error)) from error
    added = CreateColumn(Column(name, column)).compile(dialect=dialect)
    return f"ALTER TABLE {dialect.identifier_preparer.format_table(table)} ADD COLUMN {added}"
