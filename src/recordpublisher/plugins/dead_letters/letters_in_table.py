"""Reads and removes the dead letters in a table of a database. It needs the extra `sql`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, Select, Table, and_, delete, func, or_, select, tuple_
from sqlalchemy.exc import DataError

from recordpublisher.fetcher.conditional_store import unreadable_error
from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter, letter_of_row
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.sink_properties import SQL_TABLE, SQL_URI

from ..databases import Database
from ..sinks.sql.rows import IDENTITY
from ..sinks.sql.target_table import find_table
from .base import CHUNK, StoredLetters

CONVERSION_ERRORS = (ValueError, TypeError, OverflowError, RecursionError, DataError)
"""Errors while a column is converted, for example a time that SQLite stores as text."""


_StoredRow = tuple[Any, Any]
"""The key of a row, and its columns or the error of one of them."""


_Newest = tuple[Any, ...]
"""A stream, a shard id, and the shard's newest sequence number."""


_SHARDS = 100
"""Number of shards whose letters one query reads. Databases limit the parameters of a statement."""


_NEEDED = {*IDENTITY, "partition_key", "explicit_hash_key", "approximate_arrival_timestamp", "data", "value"}


class TableLetters(StoredLetters):
    """Letters in a table of a database. Raises: ConfigurationError if the URI of the database is not set or is invalid."""

    def __init__(self, properties: Properties) -> None:
        uri = properties.value(SQL_URI)
        if uri is None:
            raise ConfigurationError(SQL_URI.key, None, SQL_URI.valid)
        self._database = Database(uri, SQL_URI.key, properties)
        self._name = properties.value(SQL_TABLE)

    async def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """Yield the letters in the order of stream, shard and sequence number. Leave out letters that a running job adds after the call.

        Raises: ConfigurationError if the table does not have the columns of a record.
        """
        # A replay into a stream whose records fail again would otherwise never end.
        newest = await self._database.transaction(self._newest_of_shards)
        for start in range(0, len(newest), _SHARDS):
            place: Any = None
            shards = newest[start : start + _SHARDS]
            while rows := await self._database.transaction(partial(self._page_after, place, shards)):
                place = rows[-1][0]
                if letters := self._read_letters(rows, self._letter):
                    yield letters

    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> None:
        """Delete the rows of the letters that succeeded."""
        if succeeded:
            await self._database.transaction(lambda connection: self._delete(connection, succeeded))

    async def close(self) -> None:
        """Close the connection."""
        await self._database.close()

    def _newest_of_shards(self, connection: Connection) -> list[_Newest]:
        """Return the newest sequence number of each shard, in order."""
        table = self._table(connection)
        stream, shard_id, number = (table.columns[name] for name in IDENTITY[:3])
        newest = select(stream, shard_id, func.max(number)).group_by(stream, shard_id).order_by(stream, shard_id)
        return [tuple(row) for row in connection.execute(newest)]

    def _page_after(self, place: Any, shards: Sequence[_Newest], connection: Connection) -> list[_StoredRow]:
        table = self._table(connection)
        keys = [table.columns[name] for name in IDENTITY]
        columns = select(*(table.columns[name] for name in sorted(_NEEDED)))

        stream, shard_id, number, _ = keys
        known = or_(*(and_(stream == a, shard_id == b, number <= newest) for a, b, newest in shards))

        def page(selected: Select[Any]) -> Select[Any]:
            following = selected.where(known) if place is None else selected.where(known, tuple_(*keys) > place)
            return following.order_by(*keys).limit(CHUNK)

        try:
            rows = connection.execute(page(columns)).mappings()
            return [(tuple(row[name] for name in IDENTITY), row) for row in rows]
        except CONVERSION_ERRORS:  # One row cannot be converted, so the rows are read one by one to keep the others.
            places = [tuple(row) for row in connection.execute(page(select(*keys)))]
            return [(each, _row_or_error(connection, columns.where(tuple_(*keys) == each))) for each in places]

    def _letter(self, stored: _StoredRow, _: int) -> DeadLetter:
        place, row = stored
        name = f"the row {place} of the table {self._name}"
        if isinstance(row, Exception):
            raise unreadable_error(name, getattr(row, "orig", row)) from row
        return letter_of_row(dict(row), name, place)

    def _delete(self, connection: Connection, letters: Sequence[DeadLetter]) -> None:
        table = self._table(connection)
        keys = tuple_(*(table.columns[name] for name in IDENTITY))
        for start in range(0, len(letters), 100):  # Databases limit the number of parameters of a statement.
            places = [letter.place for letter in letters[start : start + 100]]
            connection.execute(delete(table).where(keys.in_(places)))

    def _table(self, connection: Connection) -> Table:
        table = find_table(connection, self._name) if self._database.exists() else None
        if table is None or (missing := sorted(_NEEDED.difference(table.columns.keys()))):
            reason = "there is no such table" if table is None else f"it has no column {', '.join(missing)}"
            raise ConfigurationError(
                SQL_TABLE.key, self._name, "a table of dead letters, as the sql sink creates it", reason=reason
            )
        return table


def _row_or_error(connection: Connection, query: Select[Any]) -> Any:
    try:
        return connection.execute(query).mappings().one()
    except CONVERSION_ERRORS as error:
        return error
