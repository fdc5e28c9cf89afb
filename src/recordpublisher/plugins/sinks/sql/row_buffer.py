"""RowBuffer: the batches that wait for a checkpoint, and the transaction that inserts their rows."""

from collections.abc import Callable, Collection, Sequence

from sqlalchemy import Connection

from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.plugins.stores.sql.database import Database
from recordpublisher.publishers.records import RecordBatch

from ..failed_commit_guard import FailedCommitGuard
from .rows import Row
from .target_table import RejectedRowsError, TargetTable


class RowBuffer:
    """Owns the waiting batches. `limit` bytes of them make it request a checkpoint. `open` comes before everything else."""

    def __init__(self, database: Database, limit: int) -> None:
        self._database = database
        self._limit = limit
        self._context = SinkContext()
        self._target: TargetTable | None = None
        self.reset()

    def open(self, context: SinkContext, target: TargetTable) -> None:
        """Begin empty."""
        self._context, self._target = context, target
        self.reset()

    def reset(self) -> None:
        """Drop everything; a commit that failed before is of no importance any more."""
        self._waiting: list[RecordBatch] = []
        self._bytes = 0
        self._guard = FailedCommitGuard()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    def add(self, batch: RecordBatch) -> None:
        """Keep a batch for the next commit."""
        self._waiting.append(batch)
        self._bytes += batch.held_bytes
        if self._bytes >= self._limit:
            self._context.request_checkpoint()

    def drop(self, shards: Collection[str]) -> None:
        """Forget what waits of these shards (`Shard.key`)."""
        self._keep([batch for batch in self._waiting if batch.shard.key not in shards])

    async def commit(
        self,
        begin: Callable[[Connection], bool],
        keep: Callable[[Connection], None],
        shards: Collection[str] | None = None,
    ) -> None:
        """One transaction: `begin`, then the rows of these shards (None: of all), then `keep`. Nothing more if `begin` returns False.

        Columns that the table needs are added before, in a transaction of their own.

        Rows that the database rejects are reported, and the transaction is repeated without them. Raises: what `begin`, `keep` and the
        job's policy for bad records raise; RetriesExhaustedError when the database is unreachable. After an error every further commit
        raises it until `reset`.
        """
        with self._guard:
            batches = [batch for batch in self._waiting if shards is None or batch.shard.key in shards]
            if fields := await self._database.in_thread(lambda: self._opened_target.new_fields(batches)):
                await self._database.transaction(lambda connection: self._opened_target.add_fields(connection, fields))
            rows = await self._database.in_thread(lambda: self._rows(batches))
            await self._reject([row for row in rows if row.reason])
            await self._insert(begin, [row for row in rows if not row.reason], keep)
        done = {id(batch) for batch in batches}
        self._keep([batch for batch in self._waiting if id(batch) not in done])

    def _keep(self, batches: list[RecordBatch]) -> None:
        self._waiting, self._bytes = batches, sum(batch.held_bytes for batch in batches)

    def _rows(self, batches: Sequence[RecordBatch]) -> list[Row]:
        return [row for batch in batches for row in self._opened_target.rows.rows(batch)]

    async def _insert(
        self, begin: Callable[[Connection], bool], rows: list[Row], keep: Callable[[Connection], None]
    ) -> None:
        """Commit; retry without the rows that the database rejects, until it rejects none."""

        def attempt(connection: Connection) -> None:
            if begin(connection):
                self._opened_target.insert(connection, rows)
                keep(connection)

        while True:
            try:
                await self._database.transaction(attempt)
            except RejectedRowsError as error:
                await self._reject(error.rows)
                bad = {(id(row.batch), row.index) for row in error.rows}
                rows = [row for row in rows if (id(row.batch), row.index) not in bad]
            else:
                return

    async def _reject(self, rows: list[Row]) -> None:
        await self._context.reject_all([(row.record, row.reason) for row in rows])

    @property
    def _opened_target(self) -> TargetTable:
        if self._target is None:
            raise RuntimeError("the sink is not open")
        return self._target
