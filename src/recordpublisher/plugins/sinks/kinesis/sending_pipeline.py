"""Connects the parts that handle a record after `put`: queues, calls, results and the shard map.

A record is queued for its shard (`shard_queues/`), sent in a PutRecords call (`put_records/`), and completed by its result.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import FatalKinesisError, SinkError
from recordpublisher.publishers.kinesis.ports import StreamSummary, WritingPort
from recordpublisher.publishers.retry import RetryPolicy, call_with_retries
from recordpublisher.publishers.service_limits import DEFAULT_RECORD_BYTES

from .adaptive_rate import ShardRateLimit
from .failed_records import FailedRecords
from .outstanding_records import OutstandingRecords
from .pending_record import PendingRecord
from .put_records.completion_handler import CompletionHandler, KeyOrder
from .put_records.sender import Sender, SendPermission
from .settings import KinesisSinkSettings
from .shard_queues.kpl_aggregator import KplAggregator
from .shard_queues.shard_map_refresher import MisroutedRecord, ShardMapRefresher
from .shard_queues.shard_queues import NO_SHARDS, ShardMap, ShardQueues
from .statistics import SinkMetrics

DEFAULT_SUMMARY = StreamSummary(DEFAULT_RECORD_BYTES, distributes_by_key=True)
"""Assumed if the credentials permit writing to the stream but not describing it."""
SECONDS_BETWEEN_LIMIT_READS = 1.0
"""Pause between two reads of the size limit, because an account has 20 DescribeStreamSummary calls a second.

A record that may be too large waits for the next read.
"""


async def fetch_stream_summary(port: WritingPort, stream: str) -> StreamSummary:
    """Return the stream's limits. Without the permission kinesis:DescribeStreamSummary, which writers often lack, return the defaults."""
    try:
        return await port.stream_summary(stream)
    except FatalKinesisError:
        return DEFAULT_SUMMARY


class RecordLimit:
    """Owns the largest size of a record of the stream.

    The size can be changed at any time, so it is read again before a record is refused.
    """

    def __init__(self, port: WritingPort, stream: str, retries: RetryPolicy, clock: Clock) -> None:
        self._port = port
        self._stream = stream
        self._retries = retries
        self._clock = clock
        self._read_at = -math.inf
        self._reading = asyncio.Lock()
        self.max_bytes = DEFAULT_SUMMARY.max_record_bytes
        """Largest size of data and key together (bytes)."""

    async def read(self) -> StreamSummary:
        """Read and return the stream's settings.

        Raises: StreamNotFoundError if there is no such stream, and errors that retries cannot fix.
        """
        began = self._clock.monotonic()
        summary = await call_with_retries(lambda: fetch_stream_summary(self._port, self._stream), self._retries)
        self.max_bytes, self._read_at = summary.max_record_bytes, began
        return summary

    async def read_after(self, given_at: float) -> None:
        """Return when the limit was read later than `given_at` (seconds of the clock). Read it if necessary, as soon as that is allowed.

        Raises: the errors of `read`.
        """
        async with self._reading:
            if self._read_at <= given_at:
                await asyncio.sleep(self._read_at + SECONDS_BETWEEN_LIMIT_READS - self._clock.monotonic())
                await self.read()


class SendingPipeline:
    """Owns the tasks that send records and list shards, from `open` to `close`. Before `open` there are no shards."""

    def __init__(
        self,
        port: WritingPort,
        stream: str,
        settings: KinesisSinkSettings,
        clock: Clock,
        outstanding: OutstandingRecords,
        failures: FailedRecords,
        metrics: SinkMetrics,
        on_change: Callable[[], None],
    ) -> None:
        aggregates, retries = settings.aggregates, settings.retries
        aggregator = KplAggregator(settings.aggregate_count, settings.aggregate_bytes) if aggregates else None
        rate_limit = ShardRateLimit(
            settings.records_per_second, settings.bytes_per_second, settings.initial_fraction, retries.max_ms / 1000
        )
        self._settings = settings
        self._clock = clock
        self._outstanding = outstanding
        self._failures = failures
        self._on_change = on_change
        self._queued_since_wake = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False
        self.permission = SendPermission(aggregator)
        self.limit = RecordLimit(port, stream, retries, clock)
        self._order = KeyOrder(aggregator) if settings.keeps_key_order else None
        self._queues = queues = ShardQueues(NO_SHARDS, rate_limit, aggregator)
        completion = CompletionHandler(
            queues,
            outstanding,
            self._order,
            failures,
            settings,
            clock,
            metrics,
            on_misrouted=self._request_refresh,
            on_change=self._on_progress,
        )
        self._refresher = ShardMapRefresher(
            port,
            stream,
            aggregates,
            retries,
            clock,
            metrics,
            apply=self._apply_shard_map,
            acknowledge=completion.acknowledge,
            send_again=completion.send_again,
            on_change=self._on_progress,
        )
        self._sender = Sender(
            port,
            stream,
            queues,
            settings,
            clock,
            metrics,
            self.permission,
            self._largest_record_now,
            completion.handle_results,
        )

    async def open(self) -> None:
        """Read the stream's limits and shards, and start the tasks.

        Raises: StreamNotFoundError if there is no such stream, and errors that retries cannot fix.
        """
        summary = await self.limit.read()
        await self._refresher.list_first(summary.distributes_by_key)
        self._tasks = [
            self._start(self._sender.run(), "kinesis-sink-sender"),
            self._start(self._refresher.run(), "kinesis-sink-shard-map"),
        ]

    async def close(self) -> None:
        """Cancel the tasks and the open calls."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def open_requests(self) -> int:
        """Number of PutRecords calls that have not ended."""
        return self._sender.open_requests

    def enqueue(self, record: PendingRecord) -> None:
        """Queue a record for its shard. With PER_KEY hold it while an earlier record of its key is not acknowledged."""
        if self._order is not None and not self._order.admit_or_hold(record):
            return
        queue = self._queues.queue_for(record)
        if queue.records:
            queue.add(record, 0.0)
        else:
            now = self._clock.monotonic()
            queue.add(record, now)
            self._sender.wake_by(now + self._settings.linger_seconds)
        self._queued_since_wake += 1
        if self._queued_since_wake >= self._settings.request_count:
            self._wake_sender()

    def enqueue_all(self, records: Sequence[PendingRecord]) -> None:
        """Queue many records at once, which costs a fraction of `enqueue`. With PER_KEY each record is queued by itself."""
        if self._order is not None:
            for record in records:
                self.enqueue(record)
            return
        now = self._clock.monotonic()
        for queue, of_queue in self._queues.by_queue(records):
            was_empty = not queue.records
            queue.add_all(of_queue, now)
            if was_empty:
                self._sender.wake_by(now + self._settings.linger_seconds)
        self._queued_since_wake += len(records)
        if self._queued_since_wake >= self._settings.request_count:
            self._wake_sender()

    def _wake_sender(self) -> None:
        """Wake the sender, because enough records for a whole call were queued since it was last woken."""
        self._queued_since_wake = 0
        self._sender.wake()

    def flush_now(self) -> None:
        """Send all queued records without waiting for full calls or full aggregates."""
        self._queues.mark_all_due()
        self._sender.wake()

    def _request_refresh(self, misrouted: list[MisroutedRecord]) -> None:
        self._refresher.request_refresh(misrouted)

    async def _largest_record_now(self) -> int:
        await self.limit.read_after(self._clock.monotonic())
        return self.limit.max_bytes

    def _apply_shard_map(self, shard_map: ShardMap) -> None:
        self._queues.update(shard_map, self._clock.monotonic())
        self._outstanding.update_limits(shard_map.open_count)

    def _on_progress(self) -> None:
        """Wake the sender and the waiting writes, because records were completed or moved. After an error end the tasks."""
        if self._failures.error is not None:
            for task in self._tasks:
                task.cancel()
        self._sender.wake()
        self._on_change()

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._on_task_end)
        return task

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        # The end of an event loop cancels all its tasks. Without an error a flush would then wait for records that no task sends.
        error = SinkError(f"the task {task.get_name()} was cancelled") if task.cancelled() else task.exception()
        if error is not None and not self._is_closed:
            self._failures.fail(error)
            self._on_progress()
