"""One task of a writing job. It puts its rows as fast as they are acknowledged, and counts them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordpublisher.plugins.sinks.kinesis.records import PendingRecord
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import RecordPublisherError, SinkError

from ..process.python_worker import WorkerLoop
from .rejected_rows import RejectedRows
from .row_conversion import RowsToRecords, slices
from .writer_pool import WriterPool

SKIP_HINT = "; the options onFailure=SKIP and deadLetters=<folder> continue without such rows"


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The counts of a finished task.

    - `records`, `bytes`: rows acknowledged, and the bytes of their data and keys.
    - `kinesis_records`: Kinesis records acknowledged: fewer than rows with aggregation.
    - `retries`, `throttles`: records sent again, and records that a shard's limit rejected.
    - `given_up`, `dead_letters`: rows that were not put, and how many of them are dead letters.
    - `waits`: how often the task waited because too much was outstanding.
    """

    task: int
    attempt: int
    records: int
    bytes: int
    kinesis_records: int
    retries: int
    throttles: int
    given_up: int
    waits: int
    seconds: float
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """Writes the rows of one attempt of a task.

    - `where`: names the task in errors.
    - `pool_key`: the cache key of this job's writers.
    - `rejected`: receives the rows that cannot be put. Without it such a row fails the task.
    """

    task: int
    attempt: int
    where: str
    rows: RowsToRecords
    loop: WorkerLoop
    pool_key: tuple[object, ...]
    make: Callable[[], WriterPool]
    rejected: RejectedRows | None = None
    clock: Clock = SystemClock()  # noqa: RUF009 - has no state

    def run(self, batches: Iterable[Any]) -> TaskFigures:
        """Put Arrow batches one by one, and return when all rows are acknowledged.

        Raises: SinkError, which names batch and task, if rows cannot be put. The next attempt puts all rows again, including rows that this
        attempt has put.
        """
        writers = self.loop.cached(self.pool_key, self.make)
        writers.reject = None if self.rejected is None else self.rejected.add
        began, before, invalid = self.clock.monotonic(), writers.totals(), 0
        try:
            for batch in batches:
                for part in slices(batch):
                    rows = self.rows.valid_rows(part, writers.reject)
                    invalid += part.num_rows - rows.num_rows
                    self.loop.run(self._put(writers, self.rows.records_of(rows)))
            self.loop.run(self._finish(writers))
        except BaseException as error:
            self._abandon(writers)
            if isinstance(error, RecordPublisherError):
                hint = SKIP_HINT if isinstance(error, SinkError) and self.rejected is None else ""
                raise SinkError(f"{self.where}: {error}{hint}") from error
            raise
        return self._figures(writers.totals() - before, invalid, self.clock.monotonic() - began)

    async def _put(self, writers: WriterPool, records: Mapping[str, Sequence[PendingRecord]]) -> None:
        await writers.put(records)
        if self.rejected is not None:
            await self.rejected.write()

    async def _finish(self, writers: WriterPool) -> None:
        await writers.flush()
        if self.rejected is not None:
            await self.rejected.finish()

    def _abandon(self, writers: WriterPool) -> None:
        """Close the failed writers, without waiting for outstanding records."""
        self.loop.forget(self.pool_key)
        self.loop.start(writers.abandon())
        if self.rejected is not None:
            self.loop.start(self.rejected.close())

    def _figures(self, counts: Counter[str], invalid: int, seconds: float) -> TaskFigures:
        return TaskFigures(
            task=self.task,
            attempt=self.attempt,
            records=counts["numRecordsOut"],
            bytes=counts["numBytesOut"],
            kinesis_records=counts["kinesisRecords"],
            retries=counts["retries"],
            throttles=counts["throttles"],
            given_up=counts["numRecordsOutErrors"] + invalid,
            waits=counts["backpressureCycles"],
            seconds=seconds,
            dead_letters=0 if self.rejected is None else self.rejected.letters,
        )
