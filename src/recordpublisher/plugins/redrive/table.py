"""TableLetters: dead letters in a table of the sql sink. A row is deleted when its letter was replayed."""

from collections.abc import AsyncGenerator, Sequence
from datetime import UTC
from functools import partial
from typing import Any

from sqlalchemy import Connection, Table, delete, select, tuple_

from recordpublisher.plugins.sinks.sql.rows import IDENTITY
from recordpublisher.plugins.sinks.sql.table_definitions import find_table
from recordpublisher.plugins.stores.sql.database import Database
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.sinks import SQL_TABLE, SQL_URI
from recordpublisher.publishers.properties.properties import Properties

from .files import letter_of_row
from .letters import CHUNK, DeadLetter, DeadLetters

_NEEDED = {*IDENTITY, "partition_key", "explicit_hash_key", "approximate_arrival_timestamp", "data", "value"}


class TableLetters(DeadLetters):
    """Owns the connection to the database."""

    def __init__(self, properties: Properties) -> None:
        """Raises: ConfigurationError for a URI that is not set or wrong."""
        uri = properties.value(SQL_URI)
        if uri is None:
            raise ConfigurationError(SQL_URI.key, None, SQL_URI.valid)
        self._database = Database(uri, SQL_URI.key, properties)
        self._name = properties.value(SQL_TABLE)

    async def chunks(self, *, is_replay: bool) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """In the order of the key. Raises: ConfigurationError for a table without the columns of a record."""
        last: DeadLetter | None = None
        while letters := await self._database.transaction(partial(self._after, last)):
            last = letters[-1]
            yield letters

    async def finish(self, succeeded: Sequence[DeadLetter], failed: Sequence[DeadLetter]) -> None:
        """Delete the rows of those that succeeded."""
        if succeeded:
            await self._database.transaction(lambda connection: self._delete(connection, succeeded))

    async def close(self) -> None:
        """Close the connection."""
        await self._database.close()

    def _after(self, last: DeadLetter | None, connection: Connection) -> list[DeadLetter]:
        table = self._table(connection)
        keys = [table.columns[name] for name in IDENTITY]
        rows = select(*(table.columns[name] for name in sorted(_NEEDED))).order_by(*keys).limit(CHUNK)
        if last is not None:
            rows = rows.where(tuple_(*keys) > last.place)
        return [_letter(dict(row)) for row in connection.execute(rows).mappings()]

    def _delete(self, connection: Connection, letters: Sequence[DeadLetter]) -> None:
        table = self._table(connection)
        keys = tuple_(*(table.columns[name] for name in IDENTITY))
        for start in range(0, len(letters), 100):
            places = [letter.place for letter in letters[start : start + 100]]
            connection.execute(delete(table).where(keys.in_(places)))

    def _table(self, connection: Connection) -> Table:
        table = find_table(connection, self._name) if self._database.exists() else None
        if table is None or not set(table.columns.keys()) >= _NEEDED:
            raise ConfigurationError(SQL_TABLE.key, self._name, "a table of dead letters, as the sql sink creates it")
        return table


def _letter(row: dict[str, Any]) -> DeadLetter:
    arrival = row["approximate_arrival_timestamp"]
    if arrival.tzinfo is None:  # SQLite has no time zones
        row["approximate_arrival_timestamp"] = arrival.replace(tzinfo=UTC)
    return letter_of_row(row, tuple(row[name] for name in IDENTITY))
