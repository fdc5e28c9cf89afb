"""SendingPipeline: everything behind `put`, wired together once the stream's shards are known.

A record is queued for its shard (`shard_queues/`), sent in a PutRecords call (`put_records/`), and completed by its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import FatalKinesisError
from recordpublisher.publishers.kinesis.ports import StreamSummary, WritingPort
from recordpublisher.publishers.retry import call_with_retries
from recordpublisher.publishers.service_limits import DEFAULT_RECORD_BYTES

from .failure_handler import FailureHandler
from .outstanding_records import OutstandingRecords
from .pending_record import PendingRecord
from .put_records.completion_handler import CompletionHandler
from .put_records.key_order import KeyOrder
from .put_records.request import RequestLimits
from .put_records.send_permission import SendPermission
from .put_records.sender import Sender
from .rate_control import ShardRateLimit
from .settings import Settings
from .shard_queues.kpl_aggregator import KplAggregator
from .shard_queues.shard_map import ShardMap
from .shard_queues.shard_map_refresher import MisroutedRecord, ShardMapRefresher
from .shard_queues.shard_queues import ShardQueues
from .statistics import SinkMetrics

DEFAULT_SUMMARY = StreamSummary(DEFAULT_RECORD_BYTES, distributes_by_key=True)
"""Assumed when we may write to the stream but not describe it."""


async def fetch_stream_summary(port: WritingPort, stream: str) -> StreamSummary:
    """The stream's limits, or the defaults without the permission kinesis:DescribeStreamSummary, which writers often lack."""
    try:
        return await port.stream_summary(stream)
    except FatalKinesisError:
        return DEFAULT_SUMMARY


class SendingPipeline:
    """Owns the tasks that send records and list shards, from `open` to `close`."""

    def __init__(
        self,
        port: WritingPort,
        stream: str,
        settings: Settings,
        clock: Clock,
        outstanding: OutstandingRecords,
        failures: FailureHandler,
        metrics: SinkMetrics,
        on_change: Callable[[], None],
    ) -> None:
        aggregates = settings.aggregates
        self._aggregator = KplAggregator(settings.aggregate_count, settings.aggregate_bytes) if aggregates else None
        self.permission = SendPermission(self._aggregator)
        self._port = port
        self._stream = stream
        self._settings = settings
        self._clock = clock
        self._outstanding = outstanding
        self._failures = failures
        self._metrics = metrics
        self._on_change = on_change
        self._queued_since_wake = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> StreamSummary:
        """Read the stream's limits and shards, and start the tasks. Raises: StreamNotFoundError, and errors that retries cannot fix."""
        retries = self._settings.retries
        summary = await call_with_retries(lambda: fetch_stream_summary(self._port, self._stream), retries)
        listed = await call_with_retries(lambda: self._port.list_shards(self._stream), retries)
        shard_map = ShardMap.of(listed, summary.distributes_by_key, keeps_ranges=self._settings.aggregates)
        self._build(shard_map, summary)
        self._tasks = [
            self._start(self._sender.run(), "kinesis-sink-sender"),
            self._start(self._refresher.run(), "kinesis-sink-shard-map"),
        ]
        return summary

    async def close(self) -> None:
        """Cancel the tasks and the open calls."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def open_requests(self) -> int:
        """PutRecords calls that have not ended."""
        return self._sender.open_requests if self._tasks else 0

    def enqueue(self, record: PendingRecord) -> None:
        """Queue a record for its shard, or (PER_KEY) hold it behind the previous record of its key."""
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
            self._queued_since_wake = 0
            self._sender.wake()

    def flush_now(self) -> None:
        """Send all queued records without waiting for full calls or full aggregates."""
        self._queues.mark_all_due()
        self._sender.wake()

    def _build(self, shard_map: ShardMap, summary: StreamSummary) -> None:
        settings = self._settings
        aggregator = self._aggregator
        rate_limit = ShardRateLimit(settings.records_per_second, settings.bytes_per_second, settings.initial_fraction)
        self._queues = ShardQueues(shard_map, rate_limit, aggregator)
        self._outstanding.update_limits(shard_map.open_count)
        self._order = KeyOrder(aggregator) if settings.keeps_key_order else None
        completion = CompletionHandler(
            self._queues,
            self._outstanding,
            self._order,
            self._failures,
            settings.retries,
            self._clock,
            self._metrics,
            on_misrouted=self._request_refresh,
            on_change=self._on_progress,
        )
        self._refresher = ShardMapRefresher(
            self._port,
            self._stream,
            summary.distributes_by_key,
            settings.aggregates,
            settings.retries,
            self._clock,
            self._metrics,
            apply=self._apply_shard_map,
            acknowledge=completion.acknowledge,
            send_again=completion.send_again,
            on_change=self._on_progress,
        )
        self._sender = Sender(
            self._port,
            self._stream,
            self._queues,
            RequestLimits(settings.request_count, settings.request_bytes, settings.linger_seconds),
            settings.connections,
            self._clock,
            self._metrics,
            self.permission,
            completion.handle_results,
        )

    def _request_refresh(self, misrouted: list[MisroutedRecord]) -> None:
        self._refresher.request_refresh(misrouted)

    def _apply_shard_map(self, shard_map: ShardMap) -> None:
        self._queues.update(shard_map, self._clock.monotonic())
        self._outstanding.update_limits(shard_map.open_count)

    def _on_progress(self) -> None:
        """Records were completed or moved: wake the sender and the waiting writes; after an error end the tasks."""
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
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failures.fail(error)
            self._on_progress()
