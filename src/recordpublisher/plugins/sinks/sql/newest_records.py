"""Decides which row of each key is the newest: no older record replaces a newer one, whichever process writes it."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Insert, MetaData, Table, Text, select, text
from sqlalchemy.dialects import postgresql, sqlite

from recordpublisher.plugins.databases import lock_table_creation
from recordpublisher.publishers.properties.sink_properties import SQL_KEY

from .rows import Row

KEY_TABLE = "recordpublisher_keys"
"""The table with the newest record of each key. It keeps deleted keys, so that an older record does not bring a deleted row back."""
_LONGEST_KEY = 200
"""Most characters of a key. A longer key is replaced by its hash, because an index of PostgreSQL takes at most 2,700 bytes."""
_ASKED_AT_ONCE = 500
"""Keys in one statement. SQLite before 3.32 takes at most 999 parameters."""
_SCHEMA = text("SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass(:name)")


class NewestRecords:
    """Stores the newest record of each key of one target table, in the table `KEY_TABLE`, so that no older record replaces it.

    The newest record of a key has the largest sequence number, and within an aggregate the largest sub-sequence number. Sequence
    numbers of one stream grow with time across its shards. Numbers of two streams cannot be compared.
    """

    def __init__(self, connection: Connection, table: Table, key: Sequence[str]) -> None:
        """Create the table `KEY_TABLE` if it is missing."""
        # Sorted, so that jobs that name the columns of the key in another order have the same scope.
        self._key = sorted(key)
        self._scope = f"{_full_name(connection, table)} ({', '.join(self._key)})"
        exact = Text().with_variant(Text(collation="C"), "postgresql")
        self._table = Table(
            KEY_TABLE,
            MetaData(),
            Column("target", Text, primary_key=True),
            Column("key", exact, primary_key=True),
            Column("stream", Text, nullable=False),
            Column("newest", exact, nullable=False),
            Column("arrival_millis", BigInteger),
        )
        lock_table_creation(connection, KEY_TABLE)
        self._table.create(connection, checkfirst=True)

    def select(self, connection: Connection, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
        """Note in `KEY_TABLE` the sequence number of each key's newest record. Return the rows to write, and the rejected rows.

        There is at most one row for each key. A row is rejected if its sequence number is not a number, or if another stream has its key.

        The newest record of a key is written each time it arrives, so that a table that was emptied by hand is filled again. Until the
        transaction ends, other workers that write the same keys wait. All workers lock keys in the same order, to prevent deadlocks.
        """
        found: dict[tuple[str, str], tuple[str, Row]] = {}
        rejected: list[Row] = []
        for row in rows:
            if (newest := _newest(row)) is None:
                reason = f"its sequence number {row.batch.sequence_numbers[row.index]!r:.100} is not a number"
                rejected.append(Row(row.batch, row.index, {}, reason))
                continue
            of = (_text_of([row.values[name] for name in self._key]), row.batch.stream)
            if of not in found or found[of][0] <= newest:
                found[of] = (newest, row)
        ordered = sorted(found.items(), key=lambda item: item[0])
        if not ordered:
            return [], rejected
        connection.execute(self._note(connection.dialect.name), [self._parameters(*item) for item in ordered])
        noted = self._noted(connection, sorted({key for key, _ in found}))
        written: list[tuple[str, Row]] = []
        for (key, stream), (newest, row) in ordered:
            known_stream, known_newest = noted[key]
            if known_stream != stream:
                reason = (
                    f"the stream '{known_stream}' has a record with the same key, but sequence numbers of two streams cannot be compared: "
                    f"add 'stream' to {SQL_KEY.key}"
                )
                rejected.append(Row(row.batch, row.index, {}, reason))
            elif known_newest == newest:
                written.append((newest, row))
        # Sorted by the order in which records were put, because an earlier one may free a value of another unique index for a later one.
        return [row for _, row in sorted(written, key=lambda each: each[0])], rejected

    def _parameters(self, of: tuple[str, str], found: tuple[str, Row]) -> dict[str, Any]:
        (key, stream), (newest, row) = of, found
        arrival = row.batch.arrival_millis[row.index]
        return {"target": self._scope, "key": key, "stream": stream, "newest": newest, "arrival_millis": arrival}

    def _note(self, dialect: str) -> Insert:
        insert: Any = (postgresql if dialect == "postgresql" else sqlite).insert(self._table)
        new, known = insert.excluded, self._table.c
        return insert.on_conflict_do_update(  # type: ignore[no-any-return]
            index_elements=["target", "key"],
            set_={"newest": new.newest, "arrival_millis": new.arrival_millis},
            where=(known.stream == new.stream) & (known.newest < new.newest),
        )

    def _noted(self, connection: Connection, keys: Sequence[str]) -> dict[str, tuple[str, str]]:
        known = self._table.c
        noted: dict[str, tuple[str, str]] = {}
        for first in range(0, len(keys), _ASKED_AT_ONCE):
            part = keys[first : first + _ASKED_AT_ONCE]
            asked = select(known.key, known.stream, known.newest).where(
                known.target == self._scope, known.key.in_(part)
            )
            noted |= {key: (stream, newest) for key, stream, newest in connection.execute(asked)}
        return noted


def _full_name(connection: Connection, table: Table) -> str:
    """Return the same name for a table however a job spells it: with or without the schema, and in SQLite in upper or lower case."""
    if connection.dialect.name == "sqlite":
        # `bytes.lower` changes ASCII letters only, the letters whose case SQLite ignores in names.
        return f"{table.schema or 'main'}.{table.name}".encode().lower().decode()
    name = connection.dialect.identifier_preparer.format_table(table)
    schema = connection.scalar(_SCHEMA, {"name": name})
    return f"{schema or table.schema}.{table.name}"


def _newest(row: Row) -> str | None:
    """Return the record's sequence numbers as a text that sorts like the number, or None if the sequence number is not a number."""
    number = row.batch.sequence_numbers[row.index]
    if not (number.isascii() and number.isdigit()):
        return None
    number = number.lstrip("0")
    return f"{len(number):03}-{number}-{row.batch.sub_sequence_numbers[row.index]:010}"


def _text_of(key: Sequence[Any]) -> str:
    found = json.dumps(
        [bytes(each).hex() if isinstance(each, (bytes, bytearray)) else each for each in key], default=str
    )
    return found if len(found) <= _LONGEST_KEY else f"sha256:{hashlib.sha256(found.encode()).hexdigest()}"
