"""Buffers batches until a checkpoint and rows until their commit, and inserts the rows in one transaction."""

from collections.abc import Callable, Collection, Sequence

from sqlalchemy import Connection

from recordpublisher.fetcher.committing_sink import CommitNumber
from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.plugins.databases.database import Database
from recordpublisher.publishers.errors import FencedError
from recordpublisher.publishers.records import RecordBatch

from .rows import Row
from .target_table import RejectedRowsError, TargetTable


class RowBuffer:
    """Owns the waiting batches and the staged rows. It requests a checkpoint when `limit` bytes wait. `open` must be called first."""

    def __init__(self, database: Database, limit: int) -> None:
        self._database = database
        self._limit = limit
        self._context = SinkContext()
        self._target: TargetTable | None = None
        self.reset()

    def open(self, context: SinkContext, target: TargetTable) -> None:
        """Set the context and the table, and begin with an empty buffer."""
        self._context, self._target = context, target
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
        if fields := await self._database.in_thread(lambda: self._opened_target.new_fields(batches)):
            await self._database.transaction(lambda connection: self._opened_target.add_fields(connection, fields))
        rows = await self._database.in_thread(lambda: self._rows(batches))
        await self._reject([row for row in rows if row.reason])
        done = {id(batch) for batch in batches}
        self._keep([batch for batch in self._waiting if id(batch) not in done])
        if good := [row for row in rows if not row.reason]:
            self._staged[number] = good
        return len(good)

    async def insert(self, numbers: Sequence[CommitNumber], begin: Callable[[Connection], bool]) -> None:
        """Call `begin` and insert the rows that were staged under these numbers, in one transaction. Then forget the rows.

        The rows are not inserted if `begin` returns False. Rows that the database rejects are reported, and the transaction is
        repeated without them.

        Raises: FencedError if a reset has dropped the rows; the errors of `begin` and of the job's policy for bad records;
        RetriesExhaustedError if the database cannot be reached, in which case the rows stay.
        """
        # A cancelled attempt continues in its thread, possibly after `reset`. Then `self._staged` belongs to the next run of the worker.
        staged = self._staged

        def attempt(connection: Connection) -> None:
            if begin(connection):
                if not staged.keys() >= set(numbers):
                    raise FencedError("the rows of this commit were dropped: a later life has begun")
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
        """Return whether rows of this number wait for `insert`."""
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
