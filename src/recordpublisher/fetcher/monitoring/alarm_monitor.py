"""Raises alarms when records are not read, a worker does not release shards, the watermark does not rise, or the sink hangs (A2).

`RetentionPeriods` keeps the retention period of each stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.log_fields import log_extra
from recordpublisher.publishers.properties.times_and_sizes import iso_time

from ..alarms import ActiveAlarms, Alarm, AlarmKind
from ..dependencies import FetcherDependencies
from ..leases.group_counters import GroupCounters
from ..pipeline.checked_sink_calls import unfinished_of
from ..pipeline.emitter import Emitter
from ..shards.retention_check import CACHE_SECONDS
from ..shards.shard_table import ShardTable
from ..sink import Sink, Unfinished
from ..watermarks import Alignment
from .status_and_warnings import what_blocks
from .stuck_shards import (
    CHECKS_PER_INTERVAL,
    StuckShardDetector,
    UnchangedTimer,
    UnreadRecordsCheck,
    WatermarkStallDetector,
    WithheldShards,
)

POLL_SECONDS = 0.5


FLUSH_MS = 5_000


class AlarmMonitor:
    """Runs the checks for alarms periodically.

    `UnreadRecordsCheck` finds shards with unread records. `WatermarkStallDetector` finds out whether the global watermark does not rise.
    """

    def __init__(
        self,
        dependencies: FetcherDependencies,
        table: ShardTable,
        alignment: Alignment,
        emitter: Emitter,
        leases: GroupCounters,
    ) -> None:
        self._dependencies = dependencies
        self._table = table
        self._alignment = alignment
        self._emitter = emitter
        interval_ms = dependencies.settings.alarm_interval_ms
        self._is_off = interval_ms < 0
        self._pause_seconds = min(max(interval_ms / 1000 / CHECKS_PER_INTERVAL, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
        max_gap = 2 * self._pause_seconds
        self._unread_shards = StuckShardDetector(interval_ms, max_gap)
        self._stall_detector = WatermarkStallDetector(max_gap)
        self._sink_call = UnchangedTimer(max_gap)
        self._withheld = WithheldShards(leases, interval_ms, max_gap)
        self._observer = UnreadRecordsCheck(dependencies, table, max_gap)
        self.active_alarms = ActiveAlarms(interval_ms, dependencies.on_alarm)

    @property
    def watermark_stalled_ms(self) -> int:
        """How long the global watermark has not risen while records were emitted or held back by alignment (ms)."""
        return round(self._stall_detector.seconds * 1000)

    async def run(self) -> None:
        """Run the checks until cancelled. If a check fails, the error is logged, and the job continues."""
        while not self._is_off:
            await asyncio.sleep(self._pause_seconds)
            try:
                await self._check()
            except Exception:
                log.exception("a check for alarms failed; the job continues")

    async def _check(self) -> None:
        observations = await self._observer.observe_all(self._blocked_by())
        now = self._dependencies.clock.monotonic()
        unread, withheld = self._unread_shards.update(observations, now), self._withheld.alarms(now)
        of_sink = self._sink_alarms(now)
        self.active_alarms.update([*unread, *withheld, *of_sink, *self._watermark_alarms()])

    def _watermark_alarms(self) -> list[Alarm]:
        """Return an alarm if the global watermark does not rise. If neither the job nor its sink uses watermarks, return no alarm."""
        dependencies = self._dependencies
        entries = list(self._table)
        value, now = self._alignment.global_watermark, dependencies.clock.monotonic()
        seconds = self._stall_detector.update(value, entries, self._emitter.records, now)
        is_aligned = dependencies.settings.alignment.lookahead_ms is not None
        is_used = is_aligned or type(dependencies.sink).watermark is not Sink.watermark
        if not is_used or seconds * 1000 < dependencies.settings.alarm_interval_ms:
            return []
        place = "it is not known" if value is None else f"it stays at {iso_time(value)}"
        reason = f"{place}, and waits for {self._blocked_by()}"
        return [Alarm(AlarmKind.STALLED, "global watermark", round(seconds * 1000), reason)]

    def _sink_alarms(self, now: float) -> list[Alarm]:
        """Return an alarm if a call of user code does not return.

        The other alarms may not show this, because the sink may continue to accept records.
        """
        unfinished = unfinished_of(self._dependencies.sink)
        if unfinished is None or unfinished.call is None:
            self._sink_call.reset()
            return []
        lasting_ms = round(self._sink_call.observe(unfinished.call, now) * 1000)
        is_long = lasting_ms >= self._dependencies.settings.alarm_interval_ms
        return [Alarm(AlarmKind.HANGING, "sink", lasting_ms, unfinished.reason)] if is_long else []

    def _blocked_by(self) -> str:
        return what_blocks(self._alignment)


async def cancel_if_hung(
    ending: Coroutine[Any, Any, None],
    sink: Sink,
    checkpoint_running_ms: Callable[[], int],
    seconds: float,
    clock: Clock,
    *,
    limits_all: bool = False,
) -> Unfinished | None:
    """Await `ending`, the work that ends a run. Return None when it has finished, or the sink's unfinished records if it was cancelled.

    `ending` is cancelled if a call of user code (`Unfinished.call`) has been running for `seconds`. It is not cancelled in the first
    `FLUSH_MS` of a checkpoint, when the checkpoint may be writing to the store.

    - `limits_all`: whether all calls together may take `seconds`, instead of each call, including the pauses before calls that are
      repeated. It has no effect on a sink that reports neither (`Unfinished.calls` and `waiting`), such as the Kinesis sink.

    Raises: the errors of `ending`.
    """
    task = asyncio.create_task(ending)
    began = since = clock.monotonic()
    call = None
    try:
        while not (await asyncio.wait([task], timeout=POLL_SECONDS))[0]:
            left = unfinished_of(sink)
            if limits_all and left is not None and (left.calls or left.waiting):
                since = began
            elif left is None or left.call is None or left.call != call:
                call, since = None if left is None else left.call, clock.monotonic()
                continue
            if clock.monotonic() - since >= seconds and not 0 < checkpoint_running_ms() < FLUSH_MS:
                task.cancel()
                await asyncio.wait([task])
                return left if task.cancelled() else task.result()
        return task.result()
    finally:
        if not task.done():  # This coroutine itself was cancelled.
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def words_for_hung(hung: Unfinished, seconds: float, limits_all: bool) -> str:
    """Return why `cancel_if_hung` has returned `hung`, as a clause for a message. `seconds` and `limits_all` are those of that call."""
    if limits_all and (hung.calls or hung.waiting):
        return f"the sink has not finished {seconds:.0f} s after the stop"
    return f"a call has not returned for {seconds:.0f} s"


log = logging.getLogger("recordpublisher.alarm")


MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.2, 30.0
"""The shortest and the longest pause between two checks (seconds)."""


# RetentionPeriods keeps for how long each stream retains its records.

fetcher_log = logging.getLogger("recordpublisher.fetcher")


class RetentionPeriods:
    """Keeps the retention period of each stream.

    `retention_ms` requests the period of a stream (ms) from the source. It is None if the source does not report periods.
    """

    def __init__(self, retention_ms: Callable[[str], Awaitable[int | None]] | None, streams: Collection[str]) -> None:
        self._retention_ms = retention_ms
        self._streams = streams
        self._known: dict[str, int | None] = {}

    def of(self, stream: str) -> int | None:
        """Return the retention period of a stream (ms), or None while it is not known."""
        return self._known.get(stream)

    async def run(self) -> None:
        """Request the period of every stream now, and again every five minutes. A period can be changed at any time."""
        if self._retention_ms is None:
            return
        while True:
            for stream in self._streams:
                await self._request(stream)
            await asyncio.sleep(CACHE_SECONDS)

    async def request_missing(self) -> None:
        """Request the period of each stream that was added since `run` requested the periods of all streams."""
        for stream in self._streams:
            if stream not in self._known:
                await self._request(stream)

    async def _request(self, stream: str) -> None:
        if self._retention_ms is None:
            return
        try:
            self._known[stream] = await self._retention_ms(stream)
        except Exception:
            fetcher_log.exception(
                "the retention of %s cannot be read, so it is not known when its unread records will be lost; the job continues",
                stream,
                extra=log_extra(stream),
            )
