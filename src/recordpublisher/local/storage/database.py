"""Database: one SQLite file with a document of the account and the records of its shards."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from recordpublisher.publishers.errors import ConfigurationError

VERSION = 1
FILE = "kinesis.sqlite"
_TABLES = """
CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY CHECK (id = 0), document BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS shards (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS records (
    shard INTEGER, counter INTEGER, arrival_ms INTEGER NOT NULL, size INTEGER NOT NULL, fragment BLOB NOT NULL,
    PRIMARY KEY (shard, counter)
) WITHOUT ROWID;
"""

StoredRecord = tuple[int, int, int, bytes]
"""Counter, arrival in ms, size in bytes, and the fragment that responses are joined from."""


class Database:
    """Owns the file, which one process at a time may use. What a call has written survives the end of the process, also SIGKILL.

    Raises: ConfigurationError for a folder that cannot be written, a file in use, and a file of another version.
    """

    def __init__(self, folder: Path) -> None:
        valid = "a folder that can be written and that no other endpoint uses"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # used by the thread of the endpoint, which may be another one than that of the constructor
            self._connection = sqlite3.connect(folder / FILE, timeout=0, isolation_level=None, check_same_thread=False)
            for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL"):
                self._connection.execute(f"PRAGMA {pragma}")
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if version in (0, VERSION):
                self._connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError("data", str(folder), valid, reason=str(error)) from error
        if version not in (0, VERSION):
            self._connection.close()
            valid = f"a folder that this release has written (version {VERSION})"
            raise ConfigurationError("data", str(folder), valid, reason=f"its version is {version}")
        self._shard_ids: dict[str, int] = dict(self._connection.execute("SELECT name, id FROM shards"))

    def document(self) -> bytes | None:
        """Return the document of the account, None at first."""
        row = self._connection.execute("SELECT document FROM account").fetchone()
        return None if row is None else bytes(row[0])

    def save(self, document: bytes, shards: Iterable[str]) -> None:
        """Replace the document; records of shards that are not among these are removed."""
        gone = self._shard_ids.keys() - set(shards)
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("INSERT OR REPLACE INTO account VALUES (0, ?)", (document,))
            for name in gone:
                self._connection.execute("DELETE FROM records WHERE shard = ?", (self._shard_ids[name],))
                self._connection.execute("DELETE FROM shards WHERE name = ?", (name,))
        for name in gone:
            del self._shard_ids[name]

    def append(self, shard: str, records: Iterable[StoredRecord]) -> None:
        """Add records to a shard, all or none."""
        number = self._id_of(shard)  # stored by itself: if this write fails, the next one needs the shard
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            rows = ((number, *record) for record in records)
            self._connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?)", rows)

    def records(self, shard: str) -> Iterator[StoredRecord]:
        """The records of a shard in order."""
        query = "SELECT counter, arrival_ms, size, fragment FROM records WHERE shard = ? ORDER BY counter"
        return self._connection.execute(query, (self._shard_ids.get(shard),))

    def trim(self, shard: str, before_counter: int) -> None:
        """Remove the records below a counter."""
        arguments = self._shard_ids.get(shard), before_counter
        self._connection.execute("DELETE FROM records WHERE shard = ? AND counter < ?", arguments)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _id_of(self, shard: str) -> int:
        if shard not in self._shard_ids:
            number = self._connection.execute("INSERT INTO shards (name) VALUES (?)", (shard,)).lastrowid
            assert number is not None
            self._shard_ids[shard] = number
        return self._shard_ids[shard]
