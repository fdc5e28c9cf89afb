"""One task of a writing job: hands its rows over as fast as they are acknowledged, and says what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordpublisher.plugins.sinks.kinesis.pending_record import PendingRecord
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import RecordPublisherError, SinkError

from ..python_worker import WorkerLoop
from .rejected_rows import RejectedRows
from .row_conversion import RowsToRecords, slices
from .writer_pool import WriterPool

ADVICE = "; the options onFailure=SKIP and deadLetters=<folder> go on without such rows"


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """What a task did: rows acknowledged, bytes of their data and keys, Kinesis records (fewer, with aggregation), records sent again,
    records refused by a shard's limit, rows given up, looks for room that found none, seconds; how many of the rows are dead letters."""

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
    """Writes the rows of one attempt of a task. `where` names it in errors; `warm` is the key of this job's writers in the worker.

    `refused` takes the rows that cannot be put; without it such a row fails the task.
    """

    task: int
    attempt: int
    where: str
    rows: RowsToRecords
    loop: WorkerLoop
    warm: tuple[object, ...]
    make: Callable[[], WriterPool]
    refused: RejectedRows | None = None
    clock: Clock = SystemClock()  # noqa: RUF009 - has no state

    def run(self, batches: Iterable[Any]) -> TaskFigures:
        """Take Arrow batches one by one, the next when the last was handed over, and return when all rows are acknowledged.

        Raises: SinkError that names batch and task; rows of a failed attempt that were acknowledged come again with the next one.
        """
        writers = self.loop.cached(self.warm, self.make)
        writers.refuse = None if self.refused is None else self.refused.take
        began, before, unusable = self.clock.monotonic(), writers.totals(), 0
        try:
            for batch in batches:
                for part in slices(batch):
                    rows = self.rows.valid_rows(part, writers.refuse)
                    unusable += part.num_rows - rows.num_rows
                    self.loop.run(self._put(writers, self.rows.records_of(rows)))
            self.loop.run(self._finish(writers))
        except BaseException as error:
            self._abandon(writers)
            if isinstance(error, RecordPublisherError):
                advice = ADVICE if isinstance(error, SinkError) and self.refused is None else ""
                raise SinkError(f"{self.where}: {error}{advice}") from error
            raise
        return self._figures(writers.totals() - before, unusable, self.clock.monotonic() - began)

    async def _put(self, writers: WriterPool, records: Mapping[str, Sequence[PendingRecord]]) -> None:
        await writers.put(records)
        if self.refused is not None:
            await self.refused.write()

    async def _finish(self, writers: WriterPool) -> None:
        await writers.flush()
        if self.refused is not None:
            await self.refused.finish()

    def _abandon(self, writers: WriterPool) -> None:
        """A writer that failed takes nothing more, and what is outstanding is nobody's now."""
        self.loop.forget(self.warm)
        self.loop.start(writers.abandon())
        if self.refused is not None:
            self.loop.start(self.refused.close())

    def _figures(self, counts: Counter[str], unusable: int, seconds: float) -> TaskFigures:
        return TaskFigures(
            task=self.task,
            attempt=self.attempt,
            records=counts["numRecordsOut"],
            bytes=counts["numBytesOut"],
            kinesis_records=counts["kinesisRecords"],
            retries=counts["retries"],
            throttles=counts["throttles"],
            given_up=counts["numRecordsOutErrors"] + unusable,
            waits=counts["backpressureCycles"],
            seconds=seconds,
            dead_letters=0 if self.refused is None else self.refused.letters,
        )
