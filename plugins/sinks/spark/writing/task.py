"""One task of a writing job: hands its rows over as fast as they are acknowledged, and says what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .....publishers.clock import Clock, SystemClock
from .....publishers.errors import RecordPublisherError, SinkError
from ..worker import WorkerLoop
from .open_writers import OpenWriters
from .rows import RowsToRecords, slices


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """What a task did: rows acknowledged, bytes of their data and keys, Kinesis records (fewer, with aggregation), records sent again,
    records refused by a shard's limit, rows given up, looks for room that found none, seconds."""

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


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """Writes the rows of one attempt of a task. `where` names it in errors; `warm` is the key of this job's writers in the worker."""

    task: int
    attempt: int
    where: str
    rows: RowsToRecords
    loop: WorkerLoop
    warm: tuple[object, ...]
    make: Callable[[], OpenWriters]
    clock: Clock = SystemClock()  # noqa: RUF009 - has no state

    def run(self, batches: Iterable[Any]) -> TaskFigures:
        """Take Arrow batches one by one, the next when the last was handed over, and return when all rows are acknowledged.

        Raises: SinkError that names batch and task; rows of a failed attempt that were acknowledged come again with the next one.
        """
        writers = self.loop.warm(self.warm, self.make)
        began, before = self.clock.monotonic(), writers.totals()
        try:
            for batch in batches:
                for part in slices(batch):
                    self.loop.run(writers.put(self.rows.records_of(part)))
            self.loop.run(writers.flush())
        except BaseException as error:
            self._let_go_of(writers)
            if isinstance(error, RecordPublisherError):
                raise SinkError(f"{self.where}: {error}") from error
            raise
        return self._figures(writers.totals() - before, self.clock.monotonic() - began)

    def _let_go_of(self, writers: OpenWriters) -> None:
        """A writer that failed takes nothing more, and what is outstanding is nobody's now."""
        self.loop.forget(self.warm)
        self.loop.start(writers.abandon())

    def _figures(self, counts: Counter[str], seconds: float) -> TaskFigures:
        return TaskFigures(
            task=self.task,
            attempt=self.attempt,
            records=counts["numRecordsOut"],
            bytes=counts["numBytesOut"],
            kinesis_records=counts["kinesisRecords"],
            retries=counts["retries"],
            throttles=counts["throttles"],
            given_up=counts["numRecordsOutErrors"],
            waits=counts["backpressureCycles"],
            seconds=seconds,
        )
