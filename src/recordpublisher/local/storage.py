"""Stores the endpoint's data in a folder, and restores it after a restart."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.safe_text import few_of

from ..publishers.decoding_errors import UNDECODABLE
from .account import Account
from .errors import ApiError
from .record_queues import Delivery, Queue
from .shard import HashRange, Shard, shard_id
from .stream import BusyStatus, Consumer, Stream, TagSet

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
"""A record: its counter, arrival time (epoch ms), size (bytes), and its JSON as responses contain it."""


TRIM_EVERY_MS = 60_000


SETTINGS = (
    "retention_hours",
    "max_record_bytes",
    "mode",
    "distribution",
    "policy",
    "encryption_key",
    "shard_metrics",
)


QUEUE_FIELDS = ("name", "arn", "created_ms", "settings", "busy_status", "busy_until_ms", "tags", "policy")


class AccountStorage:
    """Stores one account in a database. Each record is stored when it arrives, before its call is answered.

    It stores streams with their settings and tags, shards, records within retention, consumers and queues. It does not store faults,
    subscriptions, or what quotas have counted. Raises: ConfigurationError if the folder cannot be used.
    """

    def __init__(self, account: Account, folder: Path) -> None:
        self._account = account
        self._database = Database(folder)
        self._stored: dict[str, int] = {}  # The last stored counter of each shard.
        self._unlisten: dict[str, Callable[[], None]] = {}
        self._trimmed_ms = account.clock.now_ms()
        self._retention: dict[str, int] = {}
        """The retention (hours) of each shard's stream, as of the last `save`."""
        try:
            self._restore(folder)
        except ConfigurationError:
            self._database.close()
            raise
        account.set_change_listener(self.save)
        self.save()

    def save(self) -> None:
        """Store everything but the records of known shards, and from now on store the records of new shards as they arrive.

        Raises: ApiError if the database cannot be written.
        """
        document = encoded(self._account)
        shards = dict(self._shards())
        for name, (_, shard) in shards.items():
            if name not in self._unlisten:
                self._unlisten[name] = shard.log.listen(lambda name=name, shard=shard: self._on_news(name, shard))  # type: ignore[misc]
        for name in self._unlisten.keys() - shards.keys():
            self._unlisten.pop(name)()
            self._stored.pop(name, None)
        retention = {name: stream.retention_hours for name, (stream, _) in shards.items()}
        if any(hours > self._retention.get(name, hours) for name, hours in retention.items()):
            self._trim()  # Expired records must not appear again after a restart with a longer retention.
        self._retention = retention
        self._write(lambda: self._database.save(document, shards))
        for name, (_, shard) in shards.items():  # A new shard may have received records before it had a listener.
            if name not in self._stored:
                self._store_records(name, shard)

    def close(self) -> None:
        """Store the current state, and close the database. Raises: ApiError if it cannot be written; it is closed even then."""
        try:
            self.save()
        finally:
            self._account.set_change_listener(None)
            for unlisten in self._unlisten.values():
                unlisten()
            self._database.close()

    def _restore(self, folder: Path) -> None:
        document = self._database.document()
        if document is None:
            return
        try:
            stored = decoded(document)
        except UNDECODABLE as error:
            raise _changed(folder, f"the state of the endpoint that is stored there cannot be read: {error}") from error
        if stored.region != self._account.region:
            reason = f"its streams are in {stored.region}, and the endpoint is in {self._account.region}"
            raise ConfigurationError("data", str(folder), "a folder of the same region", reason=reason)
        named = {_name(stream, shard.index) for stream in stored.streams for shard in stream.shards}
        if strangers := sorted(self._database.shards - named):
            raise _changed(folder, f"it has records of shards that its streams do not have: {few_of(strangers)}")
        try:
            restore_account(self._account, stored)
        except (msgspec.ValidationError, ValueError) as error:
            raise _changed(folder, str(error)) from error
        for name, (stream, shard) in self._shards():
            shard.log.restore(self._database.records(name), shard.ending_counter)
            shard.log.trim(stream.horizon_ms)
            self._stored[name] = shard.log.tip - 1

    def _shards(self) -> list[tuple[str, tuple[Stream, Shard]]]:
        """Return each shard with its stream, each under a name that no other shard of this account ever has, not even a deleted one."""
        return [
            (_name(stream, shard.index), (stream, shard))
            for stream in self._account.streams().values()
            for shard in stream.shards.values()
        ]

    def _on_news(self, name: str, shard: Shard) -> None:
        self._store_records(name, shard)
        # If a test has split or merged a shard directly, without an operation, its children have no listener yet.
        if not shard.is_open and any(each not in self._unlisten for each, _ in self._shards()):
            self.save()

    def _store_records(self, name: str, shard: Shard) -> None:
        new = shard.log.records_after(self._stored.get(name, -1))
        if not new:
            return
        self._write(lambda: self._database.append(name, new))
        self._stored[name] = new[-1][0]
        if self._account.clock.now_ms() - self._trimmed_ms >= TRIM_EVERY_MS:
            self._trim()

    def _trim(self) -> None:
        self._trimmed_ms = self._account.clock.now_ms()
        for name, (stream, shard) in self._shards():
            shard.log.trim(stream.horizon_ms)
            first = shard.log.first_counter
            self._write(lambda name=name, first=first: self._database.trim(name, first))  # type: ignore[misc]

    @staticmethod
    def _write(write: Callable[[], None]) -> None:
        try:
            write()
        except sqlite3.Error as error:
            raise ApiError("InternalFailure", f"The data folder cannot be written: {error}", 500) from error


class Database:
    """The database file of an account. One process at a time may use it. What a call has written survives the end of the process, even by
    SIGKILL.

    Raises: ConfigurationError if the folder cannot be written, if another process uses the file, or if another version of this package
    wrote it.
    """

    def __init__(self, folder: Path) -> None:
        valid = "a folder that can be written and that no other endpoint uses"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # The connection is used by the endpoint's thread, which may differ from the thread that runs this constructor.
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

    @property
    def shards(self) -> set[str]:
        """The names of the shards for which records were stored."""
        return set(self._shard_ids)

    def document(self) -> bytes | None:
        """Return the stored form of the account, or None if the file is new."""
        row = self._connection.execute("SELECT document FROM account").fetchone()
        return None if row is None else bytes(row[0])

    def save(self, document: bytes, shards: Iterable[str]) -> None:
        """Replace the stored form of the account, and remove the records of shards that are not in `shards`."""
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
        # The id of the shard is stored in a transaction of its own, so that the next write finds it even if this write fails.
        number = self._id_of(shard)
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            rows = ((number, *record) for record in records)
            self._connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?)", rows)

    def records(self, shard: str) -> Iterator[StoredRecord]:
        """Return the records of a shard in order."""
        query = "SELECT counter, arrival_ms, size, fragment FROM records WHERE shard = ? ORDER BY counter"
        return self._connection.execute(query, (self._shard_ids.get(shard),))

    def trim(self, shard: str, before_counter: int) -> None:
        """Remove the records of a shard whose counter is below `before_counter`. The counter numbers the records in a shard."""
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


def _name(stream: Stream | StoredStream, index: int) -> str:
    return f"{stream.name}/{stream.created_ms}/{index}"


def _changed(folder: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(
        "data",
        str(folder),
        "an empty folder, or one that an endpoint has written and no other program has changed",
        reason=reason,
    )


class StoredShard(msgspec.Struct, frozen=True):
    """A shard without its records. Hash keys are stored as text, because they have 128 bits."""

    id: str
    index: int
    start: str
    end: str
    epoch: int
    parents: list[str]
    closed_epoch: int | None
    ending_counter: int | None
    is_kept: bool = True
    """Whether the stream still has the shard. A shard past retention is stored only because its children name it."""


class StoredStream(msgspec.Struct, frozen=True):
    """A stream with its settings, shards and consumers."""

    name: str
    created_ms: int
    busy: BusyStatus
    settings: dict[str, str | int | list[str] | None]
    tags: TagSet
    shards: list[StoredShard]
    consumers: list[Consumer]


class StoredQueue(msgspec.Struct, frozen=True):
    """A queue with its position in each shard, and the records that are in flight."""

    name: str
    arn: str
    stream: str
    created_ms: int
    settings: dict[str, Any]
    busy_status: str
    busy_until_ms: int
    tags: TagSet
    policy: str | None
    cursors: dict[str, int]
    deliveries: list[Delivery]


class StoredAccount(msgspec.Struct, frozen=True):
    """The account. With `token_seed`, iterators from before a restart are still valid after it."""

    region: str
    token_seed: int
    streams: list[StoredStream]
    queues: list[StoredQueue] = []


def encoded(account: Account) -> bytes:
    """Return the stored form of an account."""
    streams = [_stored_stream(stream) for stream in account.streams().values()]
    queues = [_stored_queue(queue) for queue in account.queues.all()]
    stored = StoredAccount(account.region, account.tokens.seed, streams, queues)
    return msgspec.msgpack.encode(stored, enc_hook=TagSet.values)


def decoded(document: bytes) -> StoredAccount:
    """Return a stored account. Raises: one of the errors in `UNDECODABLE` if it cannot be read."""
    return msgspec.msgpack.decode(document, type=StoredAccount, dec_hook=lambda _, tags: TagSet(tags))


def restore_account(account: Account, stored: StoredAccount) -> None:
    """Add the stored streams and queues to an empty account."""
    account.tokens.seed = stored.token_seed
    for each in stored.streams:
        _restore_stream(account.create_stream(each.name, 1), each)
    for stored_queue in stored.queues:
        _restore_queue(account, stored_queue)


def _stored_stream(stream: Stream) -> StoredStream:
    stream.apply_retention()
    kept = list(stream.shards.values())
    known = {shard.id for shard in kept}
    parents = {parent.id: parent for shard in kept for parent in shard.parents if parent.id not in known}
    return StoredStream(
        stream.name,
        stream.created_ms,
        stream.busy,
        {name: getattr(stream, name) for name in SETTINGS},
        stream.tags,
        [_stored_shard(shard, shard.id in known) for shard in (*parents.values(), *kept)],
        stream.consumers.all(),
    )


def _stored_shard(shard: Shard, is_kept: bool) -> StoredShard:
    span = shard.hash_range
    parents = [parent.id for parent in shard.parents]
    ends = shard.closed_epoch, shard.ending_counter
    return StoredShard(shard.id, shard.index, str(span.start), str(span.end), shard.epoch, parents, *ends, is_kept)


def _stored_queue(queue: Queue) -> StoredQueue:
    known, fields = queue.deliveries, {name: getattr(queue, name) for name in QUEUE_FIELDS}
    deliveries = list(known.unacknowledged.values())
    return StoredQueue(stream=queue.stream.name, cursors=known.cursors, deliveries=deliveries, **fields)


def _restore_queue(account: Account, stored: StoredQueue) -> None:
    stream = account.streams().get(stored.stream)
    if stream is None:
        raise msgspec.ValidationError(f"{stored.arn} is of the stream {stored.stream}, which is missing")
    queue = account.queues.add(Queue(stream=stream, **{name: getattr(stored, name) for name in QUEUE_FIELDS}))
    queue.deliveries.begin(stored.cursors, stored.deliveries)


def _restore_stream(stream: Stream, stored: StoredStream) -> None:
    shards: dict[str, Shard] = {}
    for each in stored.shards:  # In the order of their numbers, so that parents are restored before their children.
        parents = tuple(shards[parent] for parent in each.parents if parent in shards)
        if each.id != shard_id(each.index):
            raise msgspec.ValidationError(
                f"shard {each.index} of {stored.name} has the id {each.id!r}, which does not belong to its number"
            )
        span = HashRange(int(each.start), int(each.end))
        shard = shards[each.id] = Shard(each.id, each.index, span, each.epoch, parents)
        shard.closed_epoch, shard.ending_counter = each.closed_epoch, each.ending_counter
        for parent in parents:
            parent.children.append(shard)
    kept = {each.id: shards[each.id] for each in stored.shards if each.is_kept}
    stream.restore(stored.created_ms, stored.busy, kept)
    for name, value in stored.settings.items():
        setattr(stream, name, value)
    stream.tags = stored.tags
    for consumer in stored.consumers:
        stream.consumers.restore(consumer)
