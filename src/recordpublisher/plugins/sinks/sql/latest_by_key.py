"""Describes tables with only the latest row of each key: the key, the field that marks deletes, and the SQL statements."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from sqlalchemy import Connection, Delete, Insert, Table, bindparam, text, types
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.sink_properties import SQL_DELETE, SQL_KEY
from recordpublisher.publishers.safe_text import repr_of

_EXACT = (types.Integer, types.String, types.Uuid, types.Date, types.DateTime, types.LargeBinary)
_INEXACT = (types.CHAR, types.Enum, postgresql.CITEXT)
_KEY_TYPES = "columns of whole numbers, text, uuid, dates, times or bytes, which a database does not round"

_LATE_INDEXES = text(
    "SELECT (SELECT array_agg(attname::text) FROM pg_attribute WHERE attrelid = indrelid AND attnum = ANY(indkey)) "
    "FROM pg_index WHERE indrelid = to_regclass(:name) AND indisunique AND NOT indimmediate"
)
"""The query for the columns of each unique index that PostgreSQL may check only when the transaction ends."""

_COLLATIONS = {
    "postgresql": text(
        "SELECT attname::text FROM pg_attribute JOIN pg_collation c ON c.oid = attcollation "
        "WHERE attrelid = to_regclass(:name) AND NOT collisdeterministic"
    ),
    "sqlite": text(
        "SELECT x.name FROM pragma_index_list(:table, :schema) AS l, pragma_index_xinfo(l.name, :schema) AS x "
        "WHERE l.\"unique\" AND x.key AND x.coll <> 'BINARY'"
    ),
}
"""The query for columns in which different texts count as equal, for example by the collation NOCASE."""


@dataclass(frozen=True, slots=True)
class LatestByKey:
    """The key of a table that has one row for each key.

    - `key`: the columns of the key.
    - `delete_field`: the field that says whether a record deletes the row of its key; "" if no record does.
    - `delete_value`: the value of `delete_field` that means a delete; None if the field is a boolean.
    """

    key: tuple[str, ...]
    delete_field: str = ""
    delete_value: str | None = None

    @classmethod
    def of(cls, properties: Properties) -> "LatestByKey | None":
        """Return the key that the properties name, or None. Raises: ConfigurationError if the key or the delete field is malformed."""
        given, deletes = properties.value(SQL_KEY), properties.value(SQL_DELETE)
        if given is None:
            if deletes is not None:
                reason = "a row is deleted by its key"
                raise ConfigurationError.needs(SQL_DELETE.key, f"{SQL_KEY.key}", reason=reason)
            return None
        key = tuple(name.strip() for name in given.split(","))
        if "" in key or len(set(key)) < len(key):
            raise ConfigurationError(SQL_KEY.key, given, "different names of fields, separated by commas")
        field, equals, value = (deletes or "").partition("=")
        if deletes is not None and not field.strip():
            raise ConfigurationError(SQL_DELETE.key, deletes, "a boolean field, or field=value")
        return cls(key, field.strip(), value.strip() if equals else None)

    def deletes(self, fields: Mapping[str, Any]) -> bool:
        """Return whether a record with these fields deletes the row of its key.

        Raises: TypeError if the delete field must be a boolean and is not.
        """
        given = fields.get(self.delete_field) if self.delete_field else None
        if given is None:
            return False
        if self.delete_value is not None:
            return (given if isinstance(given, str) else json.dumps(given, default=str)) == self.delete_value
        if not isinstance(given, bool):
            raise TypeError(
                f"field '{self.delete_field}' says whether a row is deleted, and {repr_of(given)} is not a boolean"
            )
        return given

    def check_fields(self, fields: Collection[str]) -> None:
        """Check that `fields` has the delete field. Nothing is checked if `fields` is empty: then the type of the records is not known.

        Raises: ConfigurationError if the delete field is missing. Without it the sink would write each delete as a row.
        """
        if not fields or not self.delete_field or self.delete_field in fields:
            return
        value = self.delete_field if self.delete_value is None else f"{self.delete_field}={self.delete_value}"
        near = get_close_matches(self.delete_field, fields, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        reason = f"the records have no field '{self.delete_field}'{hint}"
        raise ConfigurationError(SQL_DELETE.key, value, ", ".join(fields), reason=reason)

    def check_table(self, table: Table) -> None:
        """Check the columns of the key.

        Raises: ConfigurationError if a column is missing, generated by the database, or of a type that the database rounds.
        """
        given = ",".join(self.key)
        for name in self.key:
            column = table.columns.get(name)
            if column is None or column.computed is not None:
                reason = f"table {table.fullname} has no column '{name}' that the sink can write"
                raise ConfigurationError(SQL_KEY.key, given, "columns of the table", reason=reason)
            digits = getattr(column.type, "precision", None) if isinstance(column.type, types.DateTime) else None
            if not isinstance(column.type, _EXACT) or isinstance(column.type, _INEXACT) or digits is not None:
                reason = f"column '{name}' is of type {str(column.type).lower()}"
                raise ConfigurationError(SQL_KEY.key, given, _KEY_TYPES, reason=reason)

    def check_index(self, connection: Connection, table: Table) -> None:
        """Check that a unique index has exactly the columns of the key, by an EXPLAIN of an upsert.

        Raises: ConfigurationError if there is no such index, if it is deferrable, or if a collation treats different texts as equal.
        """
        quote = connection.dialect.identifier_preparer
        columns = ", ".join(map(quote.quote, self.key))
        name = quote.format_table(table)
        nulls = ", ".join("NULL" for _ in self.key)
        upsert = f"INSERT INTO {name} ({columns}) VALUES ({nulls}) ON CONFLICT ({columns}) DO NOTHING"
        try:
            with connection.begin_nested():
                connection.exec_driver_sql(f"EXPLAIN {upsert}")
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", "") != "42P10" and "ON CONFLICT" not in str(error.orig):
                raise
            reason = f"no unique index of table {table.fullname} has exactly these columns"
            valid = f"columns that have one: run CREATE UNIQUE INDEX ON {name} ({columns})"
            if connection.dialect.name == "sqlite":
                valid = valid.replace("INDEX ON", f"INDEX {quote.quote(f'{table.name}_key')} ON")
            raise ConfigurationError(SQL_KEY.key, ",".join(self.key), valid, reason=reason) from error
        names = (
            {"name": name}
            if connection.dialect.name == "postgresql"
            else {"table": table.name, "schema": table.schema or "main"}
        )
        if inexact := set(self.key) & {*connection.execute(_COLLATIONS[connection.dialect.name], names).scalars()}:
            reason = f"the collation of column '{min(inexact)}' treats different texts as equal"
            raise ConfigurationError(
                SQL_KEY.key, ",".join(self.key), "columns that compare texts exactly", reason=reason
            )
        if connection.dialect.name == "postgresql":
            late = connection.execute(_LATE_INDEXES, {"name": name}).scalars()
            if any(set(each) == set(self.key) for each in late):  # The plan succeeds, but each insert would fail.
                reason = f"the unique index of these columns of table {table.fullname} is deferrable"
                raise ConfigurationError(
                    SQL_KEY.key, ",".join(self.key), "columns with an index that is not deferrable", reason=reason
                )

    def upsert(self, table: Table, dialect: str, given: Collection[str]) -> Insert:
        """Return the statement that inserts or replaces the row of a key.

        `given`: the columns that the record fills. When a row is replaced, its other columns get their defaults. Only its primary key and
        generated numbers are kept.
        """
        insert: Any = (postgresql if dialect == "postgresql" else sqlite).insert(table)
        kept = {column.name for column in table.primary_key.columns} | set(self.key)
        updated = {
            column.name: insert.excluded[column.name]
            for column in table.columns
            if column.name not in self.key
            and column.computed is None
            and (column.name in given or not (column.name in kept or column.identity is not None))
        }
        if not updated:
            return insert.on_conflict_do_nothing(index_elements=self.key)  # type: ignore[no-any-return]
        return insert.on_conflict_do_update(index_elements=self.key, set_=updated)  # type: ignore[no-any-return]

    def delete(self, table: Table) -> Delete:
        """Return the statement that deletes the row of a key."""
        columns = [table.columns[name] for name in self.key]
        return table.delete().where(*(column == bindparam(column.name, type_=column.type) for column in columns))

    def why_no_key(self, table: Table, values: Mapping[str, Any]) -> str:
        """Return why a row with these values has no key, or an empty text if it has one."""
        for name in self.key:
            if values.get(name) is None:
                return f"field '{name}' of the key is missing or null"
            column = table.columns[name].type
            if isinstance(column, types.Date) and isinstance(values[name], datetime):
                return f"field '{name}' of the key has a time of day, which a column of dates does not keep"
            if isinstance(column, types.LargeBinary) and not isinstance(values[name], (bytes, bytearray)):
                return f"field '{name}' of the key is neither text nor bytes"
            length = getattr(column, "length", None)
            if length is not None and len(values[name]) > length:  # PostgreSQL cuts off blanks at the end
                return f"field '{name}' of the key has more than {length} characters"
        return ""
