"""KinesisWriter: the core of the sink, which knows nothing of jobs: records in, acknowledged records out (K1 to K4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.kinesis.ports import WritingPort

from .failures import FailedRecord, FailureHandler
from .outstanding_records import NO_LIMIT, OutstandingRecords
from .pending_record import PendingRecord, is_obviously_valid, rejection_reason, size_of
from .sending_pipeline import DEFAULT_FACTS, SendingPipeline
from .settings import Settings
from .statistics import SinkMetrics
from .waiters import FifoWaiters, Notifier

NOT_OPEN = "is not open: use `async with`, or call open()"
TURN_RECORDS = 500
"""Records taken before the rest of the loop has its turn (F1): about a millisecond."""


class KinesisWriter:
    """Takes records for one stream, bounded in records and bytes, and says when they are safe.

    Everything happens on one event loop; `put` and `flush` may be called by any number of its tasks.
    """

    def __init__(
        self,
        port: WritingPort,
        stream: str,
        settings: Settings,
        clock: Clock,
        on_failure: Callable[[FailedRecord], None] | None = None,
    ) -> None:
        self._port = port
        self._stream = stream
        self._fails_on_error = settings.fails_on_error
        self._metrics = SinkMetrics()
        self._failures = FailureHandler(stream, settings.fails_on_error, on_failure)
        self._queue = OutstandingRecords(settings.queue_limit, settings.queue_bytes)
        self._engine = SendingPipeline(
            port, stream, settings, clock, self._queue, self._failures, self._metrics, self._something_changed
        )
        self._line = FifoWaiters(clock, settings.wait_seconds, self._count_cycle)
        self._settled = Notifier()
        self._largest = DEFAULT_FACTS.max_record_bytes
        self._taken_in_turn = 0
        self._closed_because: str | None = NOT_OPEN

    async def open(self) -> None:
        """Look at the stream and its shards. Raises: StreamNotFoundError, and what else no retry can help."""
        self._largest = (await self._engine.open()).max_record_bytes
        self._closed_because = None

    async def put(self, data: bytes, partition_key: str, explicit_hash_key: str | None) -> None:
        """Take one record, or wait until there is room. Cancelled, it was not taken.

        Raises: SinkError for what the service would refuse, after `close`, and for records that failed since.
        """
        outgoing = PendingRecord(data, partition_key, explicit_hash_key, size_of(data, partition_key))
        if self._failures.error is not None or self._closed_because is not None:
            self._check()
        if not is_obviously_valid(outgoing, self._largest) and self._is_refused(outgoing):
            return
        if self._must_wait(outgoing):
            await self._wait_for_room(outgoing)
        self._take(outgoing)

    async def put_all(self, records: Sequence[PendingRecord]) -> None:
        """Take records in their order, waiting for room as `put` does. What was taken before an error or cancellation stays taken."""
        self._check()
        for outgoing in records:
            if self._must_wait(outgoing):
                await self._wait_for_room(outgoing)
            if is_obviously_valid(outgoing, self._largest) or not self._is_refused(outgoing):
                self._take(outgoing)

    async def flush(self) -> None:
        """Return when everything taken before this call is acknowledged, or given up and handed to the callback (K3).

        Raises: what failed.
        """
        self._check()
        await self._drain()

    async def close(self) -> None:
        """Flush, then let go. Raises: what failed, unless an earlier call has raised it; later calls do nothing."""
        was_open, self._closed_because = self._closed_because is None, self._closed_because or "is closed"
        if not was_open:
            if self._closed_because == NOT_OPEN:
                await self._port.close()
            return
        try:
            if self._failures.error is None:
                await self._drain()
        finally:
            await self.abort()
        if not self._failures.was_told:
            self._failures.check()

    async def abort(self) -> None:
        """Let go at once: what is not acknowledged may have arrived or not."""
        self._closed_because = "is closed"
        await self._engine.close()
        await self._port.close()
        self._something_changed()

    def metrics(self) -> dict[str, Any]:
        """Counters and gauges by the names of docs/reference/kinesis-sink-metrics.md."""
        statistics = self._queue.statistics
        return self._metrics.shown(
            outstandingRecordsCount=statistics.outstanding_records,
            outstandingBytes=statistics.outstanding_bytes,
            queueLimit=None if self._queue.most_records == NO_LIMIT else self._queue.most_records,
            queueLimitBytes=self._queue.most_bytes,
            waitingWrites=len(self._line),
            openRequests=self._engine.open_calls,
            shards=statistics.shards,
            meanRecordBytes=round(statistics.mean_record_bytes, 1),
        )

    # --- helpers ------------------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._closed_because is not None:
            raise SinkError(f"the Kinesis sink of {self._stream} {self._closed_because}")
        self._failures.check()

    def _is_refused(self, outgoing: PendingRecord) -> bool:
        """Whether the service would refuse the record, and the callback has it. Raises: SinkError where that fails the sink."""
        objection = rejection_reason(outgoing, self._largest)
        if objection is None:
            return False
        self._metrics.num_records_out_errors += 1
        self._failures.refuse(outgoing, objection)
        self._failures.check()
        return True

    def _must_wait(self, outgoing: PendingRecord) -> bool:
        return self._taken_in_turn >= TURN_RECORDS or bool(self._line) or not self._queue.has_room(outgoing.size)

    async def _wait_for_room(self, outgoing: PendingRecord) -> None:
        if self._taken_in_turn >= TURN_RECORDS:
            self._taken_in_turn = 0
            await asyncio.sleep(0)
            self._check()
        if not self._line and self._queue.has_room(outgoing.size):
            return
        self._taken_in_turn = 0
        await self._line.wait_until(lambda: self._may_go_on(outgoing), self._limits_in_words)
        self._check()

    def _may_go_on(self, outgoing: PendingRecord) -> bool:
        is_over = self._failures.error is not None or self._closed_because is not None
        return is_over or self._queue.has_room(outgoing.size)

    def _take(self, outgoing: PendingRecord) -> None:
        self._taken_in_turn += 1
        self._queue.add(outgoing)
        self._engine.accept(outgoing)

    async def _drain(self) -> None:
        epoch = self._queue.next_epoch()
        self._engine.hurry()
        while not self._queue.is_settled(epoch):
            await self._settled.next()
            self._failures.check()
        self._failures.check()

    def _something_changed(self) -> None:
        self._settled.ring()
        self._line.wake()

    def _count_cycle(self) -> None:
        self._metrics.backpressure_cycles += 1

    def _limits_in_words(self) -> str:
        queue = self._queue
        return (
            f"{queue.records} records and {queue.bytes} bytes of {self._stream} are not acknowledged, "
            f"the limits are {queue.most_records} and {queue.most_bytes}"
        )
