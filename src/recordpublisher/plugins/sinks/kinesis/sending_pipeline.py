"""SendingPipeline: everything behind the queue, put together once the stream is known: lanes, sender, settlement, resharding."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import FatalKinesisError
from recordpublisher.publishers.kinesis.ports import StreamSummary, WritingPort
from recordpublisher.publishers.retry import call_with_retries

from .failures import FailureHandler
from .outstanding_records import OutstandingRecords
from .pending_record import PendingRecord
from .put_records.completion_handler import CompletionHandler
from .put_records.key_order import KeyOrder
from .put_records.request import RequestLimits
from .put_records.sender import Sender
from .rate_control import ShardRateLimit
from .settings import Settings
from .shard_queues.kpl_aggregator import KplAggregator
from .shard_queues.shard_map import ShardMap
from .shard_queues.shard_map_refresher import ShardMapRefresher, Stray
from .shard_queues.shard_queues import ShardQueues
from .statistics import SinkMetrics

DEFAULT_FACTS = StreamSummary(2**20, distributes_by_key=True)
"""Of a stream that we may write to and not describe."""


async def fetch_stream_facts(port: WritingPort, stream: str) -> StreamSummary:
    """What the stream says of itself; a writer's identity often may not ask (kinesis:DescribeStreamSummary)."""
    try:
        return await port.stream_summary(stream)
    except FatalKinesisError:
        return DEFAULT_FACTS


class SendingPipeline:
    """Owns the tasks that send and list, from `open` to `close`."""

    def __init__(
        self,
        port: WritingPort,
        stream: str,
        settings: Settings,
        clock: Clock,
        queue: OutstandingRecords,
        failures: FailureHandler,
        metrics: SinkMetrics,
        on_change: Callable[[], None],
    ) -> None:
        self._port = port
        self._stream = stream
        self._settings = settings
        self._clock = clock
        self._queue = queue
        self._failures = failures
        self._metrics = metrics
        self._on_change = on_change
        self._unsent = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> StreamSummary:
        """Look at the stream and its shards, and begin. Raises: StreamNotFoundError, and what else no retry can help."""
        retries = self._settings.retries
        facts = await call_with_retries(lambda: fetch_stream_facts(self._port, self._stream), retries)
        listed = await call_with_retries(lambda: self._port.list_shards(self._stream), retries)
        self._put_together(ShardMap.of(listed, facts.distributes_by_key), facts)
        self._tasks = [
            self._started(self._sender.run(), "kinesis-sink-sender"),
            self._started(self._resharding.run(), "kinesis-sink-resharding"),
        ]
        return facts

    async def close(self) -> None:
        """End the tasks, calls that are going on included."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def open_calls(self) -> int:
        """PutRecords calls that are going on."""
        return self._sender.open_calls if self._tasks else 0

    def accept(self, outgoing: PendingRecord) -> None:
        """A record was handed over: it goes to its lane, or waits for the one before it of its key."""
        if self._order is not None and not self._order.admit(outgoing):
            return
        lane = self._lanes.of(outgoing)
        if lane.queue:
            lane.add(outgoing, 0.0)
        else:
            now = self._clock.monotonic()
            lane.add(outgoing, now)
            self._sender.expect(now + self._settings.linger_seconds)
        self._unsent += 1
        if self._unsent >= self._settings.request_count:
            self._unsent = 0
            self._sender.wake()

    def hurry(self) -> None:
        """Send what waits, half-filled calls and aggregates too."""
        self._lanes.hurry()
        self._sender.wake()

    def _put_together(self, shard_map: ShardMap, facts: StreamSummary) -> None:
        settings = self._settings
        aggregates = settings.aggregates
        aggregation = KplAggregator(settings.aggregate_count, settings.aggregate_bytes) if aggregates else None
        pace = ShardRateLimit(settings.records_per_second, settings.bytes_per_second, settings.initial_window)
        self._lanes = ShardQueues(shard_map, pace, aggregation)
        self._queue.measure(shard_map.open_count)
        self._order = KeyOrder(aggregation) if settings.keeps_key_order else None
        settlement = CompletionHandler(
            self._lanes,
            self._queue,
            self._order,
            self._failures,
            settings.retries,
            self._clock,
            self._metrics,
            on_strays=self._noticed,
            on_change=self._changed,
        )
        self._resharding = ShardMapRefresher(
            self._port,
            self._stream,
            facts.distributes_by_key,
            settings.retries,
            self._metrics,
            adopt=self._adopt,
            acknowledged=settlement.acknowledged,
            send_again=settlement.send_again,
            on_change=self._changed,
        )
        self._sender = Sender(
            self._port,
            self._stream,
            self._lanes,
            RequestLimits(settings.request_count, settings.request_bytes, settings.linger_seconds),
            settings.connections,
            self._clock,
            self._metrics,
            settlement.settle,
        )

    def _noticed(self, strays: list[Stray]) -> None:
        self._resharding.noticed(strays)

    def _adopt(self, shard_map: ShardMap) -> None:
        self._lanes.adopt(shard_map, self._clock.monotonic())
        self._queue.measure(shard_map.open_count)

    def _changed(self) -> None:
        if self._failures.error is not None:
            for task in self._tasks:
                task.cancel()
        self._sender.wake()
        self._on_change()

    def _started(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failures.fail(error)
            self._changed()
