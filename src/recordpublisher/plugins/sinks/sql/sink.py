"""Writes rows into a database, in one transaction with the positions of the worker (its entry).

The steps of a record:

1. `SqlSink.write` keeps its batch (`RowBuffer.add`).
2. At a checkpoint `SqlSink.stage` turns the batches into rows (`rows.py`), after columns that are missing were added.
3. `SqlSink.commit` writes the entry with the positions and inserts the rows, in one transaction (`target_table.py`).
"""

import hashlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
from sqlalchemy import Connection, inspect, text

from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError, new_version
from recordpublisher.fetcher.sink import CommitNumber, CommittingSink, SinkContext, Staged
from recordpublisher.plugins.databases import Database, end_sessions, lock_table_creation, session_prefix
from recordpublisher.plugins.deserializers.schemas import is_inferred
from recordpublisher.plugins.stores.sql_store import SqlStore
from recordpublisher.publishers.errors import ConfigurationError, FencedError, StateError
from recordpublisher.publishers.properties.job_properties import JOB_NAME
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.sink_properties import SINK_BUFFER, SQL_COLUMNS, SQL_TABLE, SQL_URI
from recordpublisher.publishers.records import RecordBatch

from .latest_by_key import LatestByKey
from .rows import Row
from .target_table import RejectedRowsError, TargetTable, check_fields, has_unknown_key

log = logging.getLogger("recordpublisher.database")
MakeTarget = Callable[[Connection, Sequence[RecordBatch]], TargetTable | None]
ENTRIES = "recordpublisher_commits"
"""The table of entries (stored positions of workers).

It is separate from the state store's table, because that may be in the same database.
"""
BUFFER_BYTES = 16 * 2**20
"""Default of `flink.sink.buffer.bytes` for this sink."""
EARLIER_TABLES = ("recordpublisher_positions", "recordpublisher_workers")
"""Tables of positions of versions before 26 November 2026: for a fixed number of workers, and for groups of workers."""


class SqlSink(CommittingSink):
    """Writes rows into a table of a database, exactly once.

    Batches wait for a checkpoint. A checkpoint is one short transaction: it inserts the rows, and stores the worker's positions (its entry)
    if no other process has changed them. When `flink.sink.buffer.bytes` wait, the sink requests a checkpoint at once.
    """

    def __init__(self, properties: Mapping[str, object]) -> None:
        """Read the properties. Raises: ConfigurationError if the URI or the job's name is missing, or a property is invalid."""
        properties = Properties(properties)
        uri, job = properties.value(SQL_URI), properties.value(JOB_NAME)
        if uri is None:
            raise ConfigurationError(SQL_URI.key, None, SQL_URI.valid, reason="the sql sink needs a database")
        if job is None:
            reason = "the sql sink keeps the job's positions under this name"
            raise ConfigurationError(JOB_NAME.key, None, JOB_NAME.valid, reason=reason)
        self._job = job
        self._table_name, self._columns = properties.value(SQL_TABLE), properties.value(SQL_COLUMNS)
        if is_inferred(properties) and not properties.is_set(SQL_COLUMNS):
            self._columns = "EVOLVE"
        self._latest = LatestByKey.of(properties)
        self._database = Database(uri, SQL_URI.key, properties)
        self._entries = SqlStore(uri, SQL_URI.key, properties, database=self._database, table=ENTRIES)
        self._buffer = RowBuffer(self._database, properties.value(SINK_BUFFER) or BUFFER_BYTES)

    async def open(self, context: SinkContext) -> None:
        """Find the table, or create it.

        Raises: ConfigurationError if the table cannot hold the values; RetriesExhaustedError if the database cannot be reached;
        StateError if an earlier version has left positions of the job.
        """
        await self._database.transaction(lambda connection: _refuse_earlier_positions(connection, self._job))
        await self._entries.prepare()

        table = self._table_name, self._columns, context.value_type, self._latest

        def first_target(connection: Connection) -> TargetTable | None:
            self._warn_of_other_jobs(connection)
            return None if has_unknown_key(connection, *table) else TargetTable(connection, *table)

        def later_target(connection: Connection, first: Sequence[RecordBatch]) -> TargetTable | None:
            lock_table_creation(connection, self._table_name)
            return None if has_unknown_key(connection, *table, first) else TargetTable(connection, *table, first)

        self._buffer.open(context, await self._database.transaction(first_target), later_target)

    def entries(self) -> ConditionalStore:
        """Return the store of the workers' positions (entries), which is in the same database as the rows."""
        return self._entries

    def target(self) -> str:
        """Return the table's name. It is stored with the positions, because they do not apply to another table."""
        return f"table {self._table_name}"

    def destination(self) -> str:
        """Return the sink's class, the table and the database, as text."""
        return f"{type(self).__name__}, table {self._table_name} of {self._database.place}"

    async def check_values(self, context: SinkContext) -> str | None:
        """Return in words whether the table has the columns for the fields, or can get them. Nothing is created.

        Raises: ConfigurationError if the table cannot hold the values; RetriesExhaustedError if the database cannot be reached.
        """
        self._database.check_folder()
        if not self._database.exists():
            return f"{self._table_name} will be created"
        return await self._database.transaction(
            lambda connection: check_fields(
                connection, self._table_name, self._columns, context.value_type, self._latest
            )
        )

    async def write(self, batch: RecordBatch) -> None:
        """Keep the batch for the next checkpoint."""
        self._buffer.add(batch)

    def has_room(self) -> bool:
        """Return whether less than twice `flink.sink.buffer.bytes` waits for a checkpoint."""
        return self._buffer.has_room()

    def revoked(self, shards: Collection[str]) -> None:
        """Drop the waiting batches of these shards, because another process reads the shards now."""
        self._buffer.drop(shards)

    async def close(self) -> None:
        """Close the connection; rows that wait for a checkpoint are not written."""
        await self._database.close()

    # --- commits ---------------------------------------------------------------------------------------------------------------

    async def begin(self, life: str) -> None:
        """Drop all waiting rows. From now on, the name of the database session contains `life`, the name of this run of the worker."""
        self._buffer.reset()
        self._database.name_session(self._session_name(life))

    async def stage(self, number: CommitNumber) -> Staged | None:
        """Turn the waiting batches into rows. The rows stay in memory until `commit` inserts them.

        Raises: SinkError if a row is rejected, unless the job skips bad rows or writes them as dead letters; RetriesExhaustedError if
        the database cannot be reached.
        """
        rows = await self._buffer.stage(number)
        return Staged(number, {"rows": rows}) if rows else None

    async def commit(
        self, store: ConditionalStore, name: str, value: bytes, expected: str | None, staged: Sequence[Staged]
    ) -> str:
        """Write the entry `name` and insert the staged rows in one transaction. Return the new version of the entry.

        Raises: the errors of `CommittingSink.commit`; SinkError if the database rejects a row, unless the job skips bad rows or writes
        them as dead letters.
        """
        if expected is None or not staged:
            return await super().commit(store, name, value, expected, staged)
        version = new_version()

        def begin(connection: Connection) -> bool:
            nonlocal version
            try:
                return self._entries.replace_in(connection, name, value, expected, version)
            except ConflictError as error:
                if error.current is None or error.current.value != value:
                    raise
                version = error.current.version  # an earlier attempt has taken effect, with the rows
                return False

        await self._buffer.insert([each.number for each in staged], begin)
        return version

    async def publish(self, staged: Sequence[Staged]) -> None:
        """Insert the staged rows that `commit` has not inserted. Dead letters are such rows: they are not committed with positions."""
        if waiting := [each.number for each in staged if self._buffer.has_staged(each.number)]:
            await self._buffer.insert(waiting, lambda connection: True)

    async def discard(self, has_ended: Callable[[str], bool], kept: Sequence[Staged]) -> None:
        """Do nothing, because staged rows are only in the memory of a process."""

    async def end_life(self, life: str) -> None:
        """End the database session of the worker's run `life`. A process that was suspended in a commit would keep its locks."""
        name = self._session_name(life)
        await self._database.transaction(lambda connection: end_sessions(connection, name))

    def _session_name(self, life: str) -> str:
        """Return the name of the session of one run of a worker, in at most 63 characters."""
        return f"{session_prefix(ENTRIES, self._job)} {hashlib.sha256(life.encode()).hexdigest()[:20]}"

    def _warn_of_other_jobs(self, connection: Connection) -> None:
        stored = self._entries.values_of_others(connection)
        for job in sorted({job for job, value in stored if _target_of(value) == self.target()}):
            log.warning(
                "table %s also has rows of job '%s'. Each job keeps its own positions and writes all its records: give each job a table "
                "of its own, unless that is intended",
                self._table_name,
                job,
            )


class RowBuffer:
    """Keeps batches until they become rows, and rows until a commit inserts them. It requests a checkpoint when `limit` bytes wait.

    Call `open` first.
    """

    def __init__(self, database: Database, limit: int) -> None:
        self._database = database
        self._limit = limit
        self._context = SinkContext()
        self._target: TargetTable | None = None
        self._later_target: MakeTarget | None = None
        self.reset()

    def open(self, context: SinkContext, target: TargetTable | None, later_target: MakeTarget) -> None:
        """Set the context and the table, and begin with an empty buffer.

        - `target`: the table; None if it does not exist yet.
        - `later_target`: creates the table as soon as the first records show the type of its key.
        """
        self._context, self._target, self._later_target = context, target, later_target
        self.reset()

    def reset(self) -> None:
        """Drop all batches and rows."""
        self._staged: dict[CommitNumber, list[Row]] = {}
        self._keep([])

    def add(self, batch: RecordBatch) -> None:
        """Keep a batch for the next commit."""
        self._waiting.append(batch)
        self._bytes += batch.held_bytes
        if self._bytes >= self._limit:
            self._context.request_checkpoint()

    def has_room(self) -> bool:
        """Return whether less than twice `limit` bytes wait. The bound is needed because the database may be unreachable for long."""
        return self._bytes < 2 * self._limit

    def drop(self, shards: Collection[str]) -> None:
        """Drop the waiting batches of these shards (`Shard.key`)."""
        self._keep([batch for batch in self._waiting if batch.shard.key not in shards])

    async def stage(self, number: CommitNumber) -> int:
        """Turn the waiting batches into rows, and return their number. Missing columns are added in a separate transaction.

        Raises: the error of the job's policy for bad records if a record is rejected; ConfigurationError if a column cannot be added;
        RetriesExhaustedError if the database cannot be reached.
        """
        batches = list(self._waiting)
        if self._target is None and not await self._create(batches):
            return 0
        if fields := await self._database.in_thread(lambda: self._opened_target.new_fields(batches)):
            await self._database.transaction(lambda connection: self._opened_target.add_fields(connection, fields))
        rows = await self._database.in_thread(lambda: self._rows(batches))
        await self._reject([row for row in rows if row.reason])
        done = {id(batch) for batch in batches}
        self._keep([batch for batch in self._waiting if id(batch) not in done])
        if good := [row for row in rows if not row.reason]:
            self._staged[number] = good
        return len(good)

    async def _create(self, batches: Sequence[RecordBatch]) -> bool:
        """Create the table for these records, and return True. If they do not show the type of its key, reject them and return False."""
        make = self._later_target
        if not batches:
            return False
        assert make is not None
        self._target = await self._database.transaction(lambda connection: make(connection, batches))
        if self._target is None:
            records = [batch.slice(index, index + 1) for batch in batches for index in range(len(batch))]
            await self._context.reject_all([(record, "a field of the key is missing or null") for record in records])
            done = set(map(id, batches))
            self._keep([batch for batch in self._waiting if id(batch) not in done])
        return self._target is not None

    async def insert(self, numbers: Sequence[CommitNumber], begin: Callable[[Connection], bool]) -> None:
        """Call `begin` and insert the rows that were staged under these numbers, in one transaction. Then forget the rows.

        The rows are not inserted if `begin` returns False. Rows that the database rejects are reported, and the transaction is
        repeated without them.

        Raises: FencedError if a reset has dropped the rows; the errors of `begin` and of the job's policy for bad records;
        RetriesExhaustedError if the database cannot be reached, in which case the rows stay.
        """
        # A cancelled attempt continues in its thread, possibly after `reset`, when `self._staged` belongs to the next run of
        # the worker.
        staged = self._staged

        def attempt(connection: Connection) -> None:
            if begin(connection):
                if not staged.keys() >= set(numbers):
                    raise FencedError("the rows of this commit were dropped: a later run of its worker has begun")
                self._opened_target.insert(connection, [row for each in numbers for row in staged[each]])

        while True:
            try:
                await self._database.transaction(attempt)
            except RejectedRowsError as error:
                await self._reject(error.rows)
                bad = {(id(row.batch), row.index) for row in error.rows}
                for each in numbers:
                    staged[each] = [row for row in staged[each] if (id(row.batch), row.index) not in bad]
            else:
                break
        for each in numbers:
            staged.pop(each, None)

    def has_staged(self, number: CommitNumber) -> bool:
        """Return whether rows that were staged under this number wait for `insert`."""
        return number in self._staged

    def _keep(self, batches: list[RecordBatch]) -> None:
        self._waiting: list[RecordBatch]
        self._waiting, self._bytes = batches, sum(batch.held_bytes for batch in batches)
        self._context.resume_writing()

    def _rows(self, batches: Sequence[RecordBatch]) -> list[Row]:
        return [row for batch in batches for row in self._opened_target.rows.rows(batch)]

    async def _reject(self, rows: list[Row]) -> None:
        await self._context.reject_all([(row.record, row.reason) for row in rows])

    @property
    def _opened_target(self) -> TargetTable:
        if self._target is None:
            raise RuntimeError("the sink is not open")
        return self._target


def _refuse_earlier_positions(connection: Connection, job: str) -> None:
    """Check that no earlier version has left positions of the job. Raises: StateError if there are some. It says how to transfer them."""
    for table in filter(inspect(connection).has_table, EARLIER_TABLES):
        found = text(f"SELECT count(*) FROM {table} WHERE job = :job AND snapshot IS NOT NULL")
        if connection.scalar(found, {"job": job}):
            raise StateError(
                f"table {table} has positions of job '{job}' of an earlier version, which this version cannot read. 1. Stop the job. "
                "2. With the earlier version run `recordpublisher positions show JOB --json > positions.jsonl`. "
                f"3. Run `DELETE FROM {table} WHERE job = '...'`. "
                "4. With this version run `recordpublisher positions import JOB --from file:positions.jsonl`"
            )


class _Targeted(msgspec.Struct):
    target: str = ""


def _target_of(entry: bytes) -> str:
    """Return the target table that another job has stored with its positions (its entry), or "" if the entry cannot be read."""
    try:
        return msgspec.json.decode(entry, type=_Targeted).target
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
