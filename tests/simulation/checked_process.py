"""A process of a simulated job: it runs the real fetcher, put together from simulated parts, and reports what it does to the checker."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from recordpublisher.consumer.deserialization import BytesDeserializer
from recordpublisher.consumer.event_time import FunctionTimestamps
from recordpublisher.consumer.shard_consumer import BatchDecorator
from recordpublisher.consumer.watermark_strategies import BoundedOutOfOrderness
from recordpublisher.fetcher.checkpoints.shard_starts import Starts
from recordpublisher.fetcher.dependencies import FetcherDependencies
from recordpublisher.fetcher.global_watermark_rules import emit_limit
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason
from recordpublisher.fetcher.settings import FetcherSettings
from recordpublisher.fetcher.shard_fetcher import ShardFetcher
from recordpublisher.fetcher.shards.discovery import ShardDiscovery, StreamList
from recordpublisher.fetcher.sink import Sink
from recordpublisher.fetcher.watermarks import ShardsStatus, WatermarkTracker, watermark_of
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard

from .rule_checker import RuleChecker
from .schedule import JobRun
from .simulated_stream import FUTURE_LIMIT_MS, SimulatedStream
from .simulator import EPOCH_MS, Clock, Simulator
from .source import FiniteSource, SimulatedSource

LOOK_SECONDS = 1.0
"""How often each process looks at the list of streams."""


def properties_of(job_run: JobRun, stream: SimulatedStream) -> Properties:
    """The job's properties in a run."""
    given = {
        "flink.stream.initpos": "TRIM_HORIZON",
        "flink.watermark.lookahead.millis": job_run.lookahead,
        "flink.watermark.alignment.max.lag": job_run.max_lag,
        "flink.shard.idle.interval": job_run.idle_interval,
        "flink.shard.discovery.intervalmillis": 2_000,
        "flink.state.checkpoint.interval": 4_000,
        "flink.watermark.outoforderness.millis": stream.plan.disorder_ms,
        "flink.watermark.sync.interval": job_run.sync_interval,
        "flink.watermark.tracker.timeout": 10_000,
    }
    return Properties({key: value for key, value in given.items() if value is not None})


class CheckedSink(Sink):
    """Reports every call to the checker. A write takes `cost` virtual seconds, and the next one after a fault `stall` seconds more."""

    def __init__(self, owner: CheckedProcess, cost: float) -> None:
        self._owner = owner
        self._cost = cost
        self.is_busy = False
        self.stall = 0.0

    async def write(self, batch: RecordBatch) -> None:
        if self._owner.process.is_dead:
            return
        self._enter()
        self._owner.on_write(batch)
        cost, self.stall = self._cost + self.stall, 0.0
        if cost:
            await asyncio.sleep(cost)
        self.is_busy = False

    async def watermark(self, watermark: int) -> None:
        if not self._owner.process.is_dead:
            self._enter()
            self._owner.on_sink_watermark(watermark)
            self.is_busy = False

    def _enter(self) -> None:
        assert not self.is_busy, "calls of the sink overlap"
        self.is_busy = True


class CheckedProcess(ABC):
    """Owns the process and its fetcher, which `_build` makes. `number` tells the processes of a run apart."""

    def __init__(
        self,
        number: int,
        simulator: Simulator,
        stream: SimulatedStream,
        job_run: JobRun,
        checker: RuleChecker,
        seed: int,
        listed_streams: Callable[[], tuple[str, ...]],
    ) -> None:
        self.number = number
        self.process = simulator.process()
        self.sink = CheckedSink(self, job_run.sink_cost)
        self._checker = checker
        self._simulator = simulator
        self._stream = stream
        self._writable_since: float | None = None
        """Since when it has a record that it may write, and has written none."""
        self._held_since: dict[str, float] = {}
        """Since when alignment holds back the next record of a shard, without a break."""
        self._reported: int | None = None
        self._lags_since: float | None = None
        """Since when the reported watermark is further below the highest one than a straggler may be."""
        self._is_stopping = False
        self.job_run = job_run
        self._listed_streams = listed_streams
        self.has_ended = False
        """Whether the run has ended by itself, because every shard was read to its end (S8)."""
        source = FiniteSource if stream.plan.is_finite else SimulatedSource
        self._source = source(simulator, self.process, stream, seed, job_run.continuations)
        self._source.before_read = self.check_memory
        self._source.before_request = self.check_read
        self.fetcher = self._build()
        self.tracker = self.fetcher._dependencies.tracker
        self._report_to_tracker, self.tracker.report = self.tracker.report, self._on_report  # type: ignore[method-assign]
        self.running = self.process.spawn(self._run())

    @abstractmethod
    def _build(self) -> ShardFetcher:
        """The fetcher."""

    @property
    def _may_write(self) -> bool:
        """Whether nothing but the emit limit keeps it from writing."""
        return True

    def stop(self) -> asyncio.Task[Any]:
        """A clean stop, with a checkpoint."""
        self._is_stopping = True

        async def stopped() -> None:
            self.fetcher.stop()
            await self.running
            await self.fetcher.close()

        return self.process.spawn(stopped())

    # --- checks --------------------------------------------------------------------------------------------------------------

    def on_write(self, batch: RecordBatch) -> None:
        self._writable_since = None
        self._held_since.pop(batch.shard.key, None)  # a read that the write has allowed may begin a moment later
        is_read = batch.shard.stream in self.fetcher._dependencies.discovery.opened
        self._checker.expect(is_read, "S10", f"{batch.shard.key} is written, its stream has left the list")
        self._checker.check_alignment(batch, self.tracker.current(), self.job_run.lookahead)
        self._checker.check_write(batch, self.tracker.current())

    def on_sink_watermark(self, watermark: int) -> None:
        self._checker.check_watermark_bound(watermark, self.tracker.current())
        self._checker.check_sink_watermark(self.number, watermark, self.fetcher._table)

    def _on_report(self, status: ShardsStatus, watermark: int | None) -> int | None:
        if not self.process.is_dead:
            for entry in self.fetcher._table:
                if entry.is_open and entry.reading.is_idle and not entry.reading.queue:
                    source, process, now = self._source, self.process, self._simulator.now
                    since = max(source.other_reads.get(entry.key, now), process.resumed_at)
                    other_seconds = 0.0 if process.is_disturbed else now - since
                    empty_reads = source.empty_reads.get(entry.key)
                    self._checker.check_idleness(
                        entry.key, empty_reads, other_seconds, self.job_run.idle_interval, process.resumed_at
                    )
                first, is_counted = entry.next_watermark, entry.is_open and not entry.status.is_straggler
                if first is not None and is_counted:
                    self._checker.check_report(entry.key, first, status is ShardsStatus.ACTIVE, watermark)
                has_begun = entry.state.position is not None or entry.has_unwritten or entry.reading.is_abandoned
                if is_counted and not has_begun and not self._is_stopping:
                    # In a group another worker may have had its records in a queue, and they counted (W1).
                    value = None if self.tracker.has_others else self.tracker.current()
                    self._checker.check_beginning(entry.key, entry.state.watermark, value)
        self._reported = watermark
        return self._report_to_tracker(status, watermark)

    def check_liveness(self) -> None:
        """A record that may be written is written soon, unless the process or its sink is disturbed (W9, W12)."""
        now, process = self._simulator.now, self.process
        limit = emit_limit(self.tracker.current(), self.job_run.lookahead)
        next_watermarks = [(entry.next_watermark, entry.key) for entry in self.fetcher._table]
        writable = [key for watermark, key in next_watermarks if watermark is not None and watermark <= limit]
        may_write = self._may_write and not self._is_stopping and not self.running.done()
        if not writable or process.is_disturbed or self.sink.is_busy or process.is_dead or not may_write:
            self._writable_since = None
        elif self._writable_since is None:
            self._writable_since = now
        else:
            self._checker.check_liveness(writable, now - self._writable_since)

        self._held_since = {} if process.is_disturbed else {key: self._held_since.get(key, now) for key in self._held}
        self._check_lag()

    @property
    def _held(self) -> set[str]:
        limit = emit_limit(self.tracker.current(), self.job_run.lookahead)
        queued = [(entry.key, entry.next_watermark) for entry in self.fetcher._table]
        return {key for key, watermark in queued if watermark is not None and watermark > limit}

    def check_read(self, key: str) -> None:
        if key in self._held and not self.process.is_dead:
            self._checker.check_read(key, self._simulator.now - self._held_since.get(key, self._simulator.now))

    def _check_lag(self) -> None:
        max_lag, now, reported = self.job_run.max_lag, self._simulator.now, self._reported
        watermarks = [value for entry in self.fetcher._table if (value := watermark_of(entry)) is not None]
        may_lag = self.process.is_disturbed or self.process.is_dead or self.running.done() or self._is_stopping
        if any(entry.status.awaits_children for entry in self.fetcher._table):
            may_lag = True  # nothing is known of the children's records yet (W5)
        if may_lag or max_lag is None or reported is None or not watermarks or max(watermarks) - reported <= max_lag:
            self._lags_since = None
        elif self._lags_since is None:
            self._lags_since = now
        else:
            self._checker.check_lag(reported, max(watermarks), max_lag, now - self._lags_since)

    def check_memory(self) -> None:
        if not self.process.is_dead:
            entries = list(self.fetcher._table)
            largest = sum(self._source.largest_batch.get(entry.key, 0) for entry in entries)
            queued = sum(entry.reading.queue.bytes for entry in entries)
            self._checker.check_queued_bytes(queued, self.job_run.budget.worker_bytes + largest)

    # --- inside -------------------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        await self.fetcher.open()
        await self._read()

    async def _read(self) -> None:
        result = await self.fetcher.run_bounded(Bounds())
        self.has_ended = result.reason is EndReason.ALL_ENDED
        if self.has_ended:
            self._checker.check_end(has_others=self.tracker.has_others)

    def _streams(self) -> Sequence[str]:
        async def look() -> tuple[str, ...]:
            await asyncio.sleep(LOOK_SECONDS / 10)
            return self._listed_streams()

        if self._stream.plan.has_two_streams:
            return StreamList(self._listed_streams(), look, LOOK_SECONDS)
        return self._stream.names

    def _parts(self, tracker: WatermarkTracker, **more: Any) -> FetcherDependencies:
        properties = properties_of(self.job_run, self._stream)
        job_run = self.job_run
        settings = replace(FetcherSettings.of(properties), budget=job_run.budget)

        async def pinned(stream: str) -> int:
            return EPOCH_MS

        def decorator(shard: Shard, metrics: ShardMetrics) -> BatchDecorator:
            times, strategy = FunctionTimestamps(lambda record: int(record.data)), BoundedOutOfOrderness(properties)
            of_bad = {"on_poison": OnBadRecord.SKIP, "future_limit_ms": FUTURE_LIMIT_MS}
            return BatchDecorator(BytesDeserializer(), times, strategy, metrics, **of_bad)

        return FetcherDependencies(
            factory=self._source,
            discovery=ShardDiscovery(self._source, self._streams(), settings.discovery_interval_ms),
            sink=self.sink,
            tracker=tracker,
            decorator_for=decorator,
            settings=settings,
            clock=Clock(self._simulator),
            starts=Starts(StartingPosition.trim_horizon()),
            pin_latest=pinned,
            shard_exists=self._source.shard_exists,
            is_endless=lambda stream: not self._stream.plan.is_finite,  # A stream of Kinesis always has an open shard.
            use_continuations=job_run.continuations,
            **more,
        )
