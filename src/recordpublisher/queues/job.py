"""Reads a queue into a sink, and acknowledges each record when the sink has stored it.

`QueueJob` has the duties for a queue that `ShardFetcher` has for shards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

import msgspec

from recordpublisher.fetcher.settings import checkpoint_interval_ms, sink_interval_ms
from recordpublisher.publishers.base import QueueSource
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError, StoreUnavailableError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.retry_properties import outage_policy
from recordpublisher.publishers.retry import RetryPolicy
from recordpublisher.publishers.user_code import PluginCall, close_or_leave, end_or_leave, waiting_line

from ..consumer.shard_consumer import BatchDecorator
from ..fetcher.alarms import AlarmListener
from ..fetcher.checkpoints.checkpoint_schedule import CheckpointAge, CheckpointScheduler
from ..fetcher.conditional_store import wait_for_store
from ..fetcher.metric_types import SinkMetric
from ..fetcher.monitoring.alarm_monitor import cancel_if_hung, words_for_hung
from ..fetcher.monitoring.metrics_exporter import SinkMetrics
from ..fetcher.monitoring.worker_view import WorkerProgress
from ..fetcher.pipeline.bounded_runs import BoundedResult, Bounds, EndReason, RunCompletion
from ..fetcher.pipeline.checked_sink_calls import close_sink, naming_sink, unfinished_of
from ..fetcher.pipeline.dead_letters import DeadLetterHandler
from ..fetcher.pipeline.process_suspension import SuspensionDetector
from ..fetcher.sink import Checkpoint, Sink, SinkContext, Traced, Unfinished, untraced
from ..publishers.properties.config_fields import of_property, values_of
from ..publishers.properties.job_properties import (
    ALARM_INTERVAL,
    DRAIN_TIMEOUT,
    ON_BAD_RECORD,
    WORKER_BYTES,
    OnBadRecord,
)
from ..publishers.properties.queue_properties import DUPLICATES
from ..publishers.safe_text import counted
from ..publishers.shard_metrics import ShardMetrics
from ..publishers.shards import Shard, receiver_shard
from .in_flight import InFlight
from .job_alarms import QueueAlarms
from .queue_metrics import QueueMetrics
from .receivers import Receiver, Receivers

log = logging.getLogger("recordpublisher.queue")
FLUSH_INTERVAL_MS = 1_000
"""Time between two flushes (ms), if the sink has no interval of its own."""
READY_CHECK_SECONDS = 0.02
MOST_OPEN, MOST_OPEN_UNTIL_FLUSH, MOST_OPEN_UNTIL_COMMIT = 100, 1_000, 10_000
"""The most records of one receiver that are not acknowledged. At this number the receiver waits, and a flush is made at once.

- `MOST_OPEN` is for a sink that reports each finished record.
- `MOST_OPEN_UNTIL_FLUSH` is for a sink that is flushed each second.
- `MOST_OPEN_UNTIL_COMMIT` is for a sink that commits less often.
"""


class QueueJob:
    """A job that reads a queue. In a run these tasks work together:

    1. Each receiver receives records, makes their values and queues them (`receivers.py`).
    2. One task passes the queued records to the sink.
    3. One task flushes the sink. After a flush the written records are finished. A sink with `tells_done` reports each finished record
       itself.
    4. Finished records are acknowledged, and open ones are prolonged (`in_flight.py`).

    Raises: PluginError if the source's `visibility_seconds` is not a valid number.
    """

    def __init__(self, parts: QueueJobParts) -> None:
        self._parts = parts
        self._sink, self._clock, self._settings = parts.sink, parts.clock, parts.settings
        self._sink_metrics = SinkMetrics(parts.sink)
        self._completion = RunCompletion()
        self._flushes = CheckpointScheduler(self._settings.flush_interval_ms)
        self._in_flight = InFlight(parts.source, parts.clock, drops_duplicates=self._settings.duplicates == "DROP")
        receivers = _receivers_of(parts)
        by_key = {receiver.shard.key: receiver.metrics for receiver in receivers}
        self._dead_letters = DeadLetterHandler(
            lambda key, counter: by_key[key].add(counter), self._settings.on_poison, parts.dead_letters
        )
        is_often = self._settings.flush_interval_ms <= FLUSH_INTERVAL_MS
        self._suspension = SuspensionDetector(self._clock, lambda seconds: None)
        self._receivers = Receivers(
            parts.source,
            receivers,
            self._in_flight,
            self._sink,
            self._dead_letters,
            self._clock,
            self._suspension,
            parts.traced,
            most_open=MOST_OPEN
            if self._sink.tells_done
            else MOST_OPEN_UNTIL_FLUSH
            if is_often
            else MOST_OPEN_UNTIL_COMMIT,
            most_bytes=self._settings.most_bytes,
            outages=self._settings.store_outages,
            request_flush=self._request_flush_of_written,
        )
        self._times = CheckpointAge(self._clock)
        self._alarms = QueueAlarms(
            self._receivers, self._sink, self._clock, self._settings.alarm_interval_ms, parts.on_alarm
        )
        self._view = QueueMetrics(
            self._receivers,
            self._in_flight,
            self._sink,
            self._completion,
            self._times,
            self._alarms,
            self._suspension,
            self._clock,
            self._dead_letters,
        )

    async def open(self) -> None:
        """Find the queue, open the sinks, and flush once before the first receive.

        Raises: ConfigurationError if the queue or a sink is not configured correctly; KinesisError if a call fails; SinkError if a sink
        fails.
        """
        parts = self._parts
        with PluginCall(parts.source, "open"):
            await parts.source.open()
        context = SinkContext(
            (parts.stream,),
            self._flushes.request,
            resume_writing=self._receivers.wake,
            traced=parts.traced,
            outages=self._settings.store_outages,
            drain_seconds=self._settings.drain_ms / 1000,
            is_stopping=lambda: self._completion.is_cut_short,
            value_type=parts.value_type,
            done=lambda key, number: self._in_flight.on_report(number),
            clock=self._clock,
        )
        context = await self._dead_letters.open(context)
        with naming_sink(self._sink, "open"):
            await self._sink.open(context)
        await wait_for_store(self.checkpoint, self._settings.store_outages, "the sink")
        most = len(list(self._receivers))
        log.info(
            "the job reads the queue of stream %s, with at most %d calls at a time",
            parts.stream,
            most,
        )

    async def run(self) -> BoundedResult:
        """Run until `stop` is called or an error occurs."""
        return await self.run_bounded(Bounds())

    async def run_bounded(self, bounds: Bounds) -> BoundedResult:
        """Run until a bound is reached. This can be called again. Raises: ConfigurationError for a bound that needs ordered records."""
        if bounds.until_event_time is not None or bounds.shard_limits:
            words = "a queue keeps no order in time; use max_time, max_records or stop_at_tip"
            raise ConfigurationError("until_event_time", repr(bounds.until_event_time), reason=words)
        self._completion.start()
        self._receivers.start_run(bounds)
        try:
            async with self._in_flight.settling(self._completion.start_task):
                reason, hung = await self._run(bounds)
                # This is the last flush. At the end of the block, the records that it has stored are acknowledged, and the other ones are
                # released.
                await self._flush_last(reason, hung)
        finally:
            self._receivers.end_run()
        return BoundedResult(reason, {}, self._receivers.run_records)

    def stop(self) -> None:
        """End the run after the current write. Call this in the thread of the event loop."""
        self._completion.stop()

    def snapshot(self) -> dict[str, Any]:
        """Return a snapshot without positions: a queue itself keeps the records that are not acknowledged."""
        return {"shards": {}}

    @property
    def stores_positions(self) -> bool:
        """Return True, because the queue keeps the records that are not acknowledged."""
        return True

    async def checkpoint(self) -> dict[str, Any]:
        """Flush the sink, and return an empty snapshot. After that, all written records are stored and count as finished."""
        await self._flush()
        return self.snapshot()

    async def finish_given_up(self, checkpoint: asyncio.Task[dict[str, Any]]) -> None:
        """Wait for a flush whose caller no longer waits. Cancel it when the sink works on records for `flink.job.drain.timeout`."""

        async def finish() -> None:
            await checkpoint

        seconds, times = self._settings.drain_ms / 1000, self._times
        await cancel_if_hung(finish(), self._sink, lambda: times.running_ms, seconds, self._clock, limits_all=True)

    async def close(self) -> None:
        """Close the sinks and the source. If closing one of them fails, the others are still closed."""
        seconds = self._settings.drain_ms / 1000
        closing = (
            close_sink(self._sink, seconds),
            self._dead_letters.close(seconds),
            close_or_leave(self._parts.source, seconds),
        )
        for result in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    def metrics(self) -> dict[str, Any]:
        """Return the metrics as a plain dict: those of the job under `worker`, and those of each receiver under `shards`."""
        return self._view.metrics()

    def retention_ms(self, stream: str) -> int | None:
        """Return None, because a queue does not report how long it keeps records."""
        return None

    def progress(self) -> WorkerProgress:
        """Return the figures of this job for a progress line."""
        return self._view.progress()

    def sink_metrics(self) -> list[SinkMetric]:
        """Return the metrics that the sink exports. If the sink raises an error, return an empty list. One warning is logged then."""
        return self._sink_metrics.read()

    def sink_unfinished(self) -> Unfinished | None:
        """Return the records that the sink has not finished, or None if the sink does not report them."""
        return unfinished_of(self._sink)

    @property
    def checkpoint_times(self) -> None:
        """Always None, because a queue job stores no positions."""

    @property
    def ending(self) -> asyncio.Event:
        """An event that is set when a run begins to end, and is cleared when the next run starts."""
        return self._completion.ending

    @property
    def error(self) -> BaseException | None:
        """The error that ended the last run, or that is ending the current one."""
        return self._completion.error

    def hung_publishers(self) -> list[str]:
        """Return an empty list, because a queue has no publishers."""
        return []

    def reasons_not_ready(self) -> list[str]:
        """Return why the job is not ready, as sentences for people. The list is empty while receives and flushes succeed."""
        return self._view.reasons_not_ready()

    async def wait_ready(self) -> None:
        """Wait until the first receive of the run has succeeded, or the run has ended. Raises: the error that ended the run."""
        while not self._completion.has_ended and not self._view.has_received():  # noqa: ASYNC110 - no event for each receive
            await asyncio.sleep(READY_CHECK_SECONDS)
        if self._completion.error is not None:
            raise self._completion.error

    # --- a run ---

    async def _run(self, bounds: Bounds) -> tuple[EndReason, Unfinished | None]:
        """Start the tasks of the run, wait for its end, and end the tasks.

        Return why the run has ended. If a flush was interrupted, also return the records for which it was waiting.

        Raises: the error that ended the run.
        """
        start_task = self._completion.start_task
        self._times.start_run()
        self._flushes.start()
        writing = start_task(self._receivers.write_all(self._completion.complete))
        flushing = start_task(self._flushes.run(self._flush_periodically))
        receiving = [start_task(self._receivers.receive_all(each)) for each in self._receivers]
        others = [
            start_task(self._end_at_tip(receiving)),
            start_task(self._completion.complete_after(bounds.max_time)),
            start_task(self._alarms.run()),
            start_task(self._suspension.run()),
        ]
        reason: EndReason | None = None
        try:
            reason = await self._completion.wait()
        finally:
            self._receivers.stop()
            self._flushes.stop()
            for task in (*others, *receiving):
                # Each is cancelled only once: a second cancellation would interrupt a task that releases the records it has just received.
                task.cancel()
            # A write is never interrupted. A flush is interrupted only if a call of user code hangs, but not because this task is
            # cancelled.
            ending = asyncio.gather(self._end(others + receiving), writing, flushing, return_exceptions=True)

            async def ended() -> Unfinished | None:
                hung = await self._unless_hung(_ended(flushing), reason)
                await ending
                return hung

            hung = await self._completion.finish(ended())
        return reason, hung

    async def _end(self, cancelled: Collection[asyncio.Task[None]]) -> None:
        """Wait until cancelled tasks have ended, but at most `flink.job.drain.timeout`. A source may catch its cancellation."""
        seconds = self._settings.drain_ms / 1000
        for hung in await end_or_leave(cancelled, seconds):
            log.error(
                "a call of %s has not ended %g s after it was cancelled (flink.job.drain.timeout), and waits at %s: the job ends "
                "without it. A source must not catch CancelledError",
                type(self._parts.source).__name__,
                seconds,
                waiting_line(hung),
            )

    async def _end_at_tip(self, receiving: Collection[asyncio.Task[None]]) -> None:
        """Wait until all receivers have ended, and then end the run. They end by themselves only with `stop_at_tip`, when the queue is
        empty.
        """
        await asyncio.wait(receiving)
        if all(not task.cancelled() and task.exception() is None for task in receiving):
            self._completion.complete(EndReason.TIP)

    # --- flushes ---

    async def _flush(self, may_be_partial: bool = False, stopped: Collection[str] = (), is_last: bool = False) -> None:
        """Flush the sink, and count the written records as finished.

        No record is written during the flush, so every written record is stored after it. `may_be_partial`, `stopped` and `is_last` are
        fields of the sink's `Checkpoint`.

        Raises: the error of an earlier call of the sink, because the sink may have lost records with that call.
        """
        async with self._receivers.turn.between_writes():
            with self._times.measured():
                await self._dead_letters.flush()
                with naming_sink(self._sink, "flush"):
                    await self._sink.flush(Checkpoint(self.snapshot(), may_be_partial, stopped, is_last))
                self._in_flight.finish(self._receivers.take_written())

    async def _flush_periodically(self) -> None:
        """Flush the sink. If its target is unavailable, try again as the retry policy `store_outages` allows.

        If the job ended instead, the next start would receive every record again. A sink that reports finished records need not wait for
        all of them here, because a slow handler would delay the others.
        """

        async def flush() -> None:
            try:
                await self._flush(may_be_partial=self._sink.tells_done)
            except StoreUnavailableError:
                if self._completion.is_running:
                    raise  # If the run is ending, the last flush tries again.

        await wait_for_store(flush, self._settings.store_outages, "the sink")

    def _request_flush_of_written(self) -> None:
        if not self._sink.tells_done:
            self._flushes.request()

    async def _flush_last(self, reason: EndReason, hung: Unfinished | None) -> None:
        """Flush the sink at the end of a run. After a stop, the sink drops the records that it has not begun. They are released then.

        After a stop or `max_time`, the wait for a call of user code is limited.

        - `hung`: the records of calls that did not return during an earlier flush, or None. These calls are not waited for again.
        """
        stopped = [each.shard.key for each in self._receivers] if reason is EndReason.STOPPED else ()
        flush = partial(self._flush, stopped=stopped, is_last=True)
        if hung is not None and not self._sink.tells_done:
            return  # It is not known that any of its records is finished, so all of them are received again.
        outages, drain_ms = self._settings.store_outages, self._settings.drain_ms
        if reason is EndReason.STOPPED:
            # A supervisor would kill the process soon, and the records that are left are received again in any case.
            outages = replace(outages, max_outage_ms=drain_ms, decided_by=DRAIN_TIMEOUT.key)
        hung = await self._unless_hung(wait_for_store(flush, outages, "the sink"), reason)
        if hung is None:
            unreported = self._in_flight.expect_no_more_reports()
            # After a stop, a sink leaves records on purpose.
            if unreported and reason is not EndReason.STOPPED:
                log.warning(
                    "after its last flush the sink %s has not reported %s as finished, so they are received again. A sink with "
                    "`tells_done` must call SinkContext.done for each record, and for a rejected one after `reject` has returned",
                    type(self._sink).__name__,
                    counted(unreported, "record"),
                )
        elif self._sink.tells_done:
            await wait_for_store(partial(self._flush, may_be_partial=True), outages, "the sink")

    async def _unless_hung(self, ending: Coroutine[Any, Any, None], reason: EndReason | None) -> Unfinished | None:
        """Await `ending`, the work that ends a run, and return None.

        After a stop or `max_time`, a call of user code may take too long. Then cancel `ending`, and return the sink's unfinished records.
        """
        seconds = self._settings.drain_ms / 1000 if reason in (EndReason.STOPPED, EndReason.MAX_TIME) else inf
        limits_all = reason is EndReason.STOPPED
        hung = await cancel_if_hung(
            ending, self._sink, lambda: self._times.running_ms, seconds, self._clock, limits_all=limits_all
        )
        if hung is not None:
            log.error(
                "the job ends although %s (flink.job.drain.timeout): %s. Its record is received again",
                words_for_hung(hung, seconds, limits_all),
                hung.reason,
            )
        return hung


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The settings of a queue job. Times are in ms."""

    most_bytes: int = of_property(WORKER_BYTES)
    on_poison: OnBadRecord = of_property(ON_BAD_RECORD, kind=OnBadRecord)
    alarm_interval_ms: int = of_property(ALARM_INTERVAL)
    drain_ms: int = of_property(DRAIN_TIMEOUT)
    duplicates: str = of_property(DUPLICATES)
    flush_interval_ms: int
    store_outages: RetryPolicy

    @classmethod
    def of(cls, properties: Properties) -> QueueSettings:
        """Return the settings that these properties describe. Raises: ConfigurationError if a property is invalid."""
        own = -1 if sink_interval_ms(properties) is None else checkpoint_interval_ms(properties)
        return cls(
            flush_interval_ms=FLUSH_INTERVAL_MS if own < 0 else own,
            store_outages=outage_policy(properties),
            **values_of(cls, properties),
        )


class QueueJobParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts from which a queue job is built. `FetcherDependencies` describes those that a fetcher has as well."""

    source: QueueSource
    stream: str
    sink: Sink
    decorator_for: Callable[[Shard, ShardMetrics], BatchDecorator]
    settings: QueueSettings
    clock: Clock
    dead_letters: Sink | None = None
    on_alarm: AlarmListener | None = None
    traced: Traced = untraced
    value_type: Any = None


async def _ended(task: asyncio.Task[None]) -> None:
    """Wait until a task has ended. If this wait is cancelled, cancel the task, and wait for its end."""
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise


def _receivers_of(parts: QueueJobParts) -> list[Receiver]:
    receivers = []
    for number in range(max(parts.source.most_receivers, 1)):
        shard, metrics = receiver_shard(parts.stream, number), ShardMetrics()
        receivers.append(Receiver(number, shard, parts.decorator_for(shard, metrics), metrics))
    return receivers
