"""Looks for unread and withheld shards, a stalled watermark and a hanging sink (A2)."""

from __future__ import annotations

import asyncio
import logging

from ..alarms import ActiveAlarms, Alarm, AlarmKind
from ..dependencies import FetcherDependencies
from ..leases.lease_counts import LeaseCounts
from ..pipeline.emitter import Emitter
from ..shards.shard_table import ShardTable
from ..sink import Sink
from ..watermarks.alignment import Alignment
from .stall_detector import UnchangedTimer, WatermarkStallDetector
from .status_log import blocked_by
from .stuck_shard_detector import StuckShardDetector, WithheldShards
from .unread_records_check import UnreadRecordsCheck

log = logging.getLogger("recordpublisher.alarm")

CHECKS_PER_INTERVAL = 10
"""Number of checks in one alarm interval."""
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.2, 30.0
"""The shortest and the longest pause between two checks (seconds)."""


class AlarmMonitor:
    """Owns when the checks run. `UnreadRecordsCheck` finds unread shards, and `stall_detector.py` a global watermark that does not rise."""

    def __init__(
        self,
        dependencies: FetcherDependencies,
        table: ShardTable,
        alignment: Alignment,
        emitter: Emitter,
        leases: LeaseCounts,
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
        """How long the global watermark has not risen while records were emitted or held back (ms)."""
        return round(self._stall_detector.seconds * 1000)

    async def run(self) -> None:
        """Check until cancelled. A failed check changes nothing and never ends the job."""
        while not self._is_off:
            await asyncio.sleep(self._pause_seconds)
            try:
                await self._check()
            except Exception:
                log.exception("a check for alarms failed, the job continues")

    async def _check(self) -> None:
        observations = await self._observer.observe_all(self._blocked_by())
        now = self._dependencies.clock.monotonic()
        unread, withheld = self._unread_shards.update(observations, now), self._withheld.alarms(now)
        of_sink = self._sink_alarms(now)
        self.active_alarms.update([*unread, *withheld, *of_sink, *self._watermark_alarms()])

    def _watermark_alarms(self) -> list[Alarm]:
        """Return an alarm for a stalled global watermark, if anything depends on it: alignment, or a sink with a `watermark` method."""
        dependencies = self._dependencies
        entries = list(self._table)
        value, now = self._alignment.global_watermark, dependencies.clock.monotonic()
        seconds = self._stall_detector.update(value, entries, self._emitter.records, now)
        is_aligned = dependencies.settings.alignment.lookahead_ms is not None
        is_used = is_aligned or type(dependencies.sink).watermark is not Sink.watermark
        if not is_used or seconds * 1000 < dependencies.settings.alarm_interval_ms:
            return []
        reason = f"it stays at {value}, waiting for {self._blocked_by()}"
        return [Alarm(AlarmKind.STALLED, "global watermark", round(seconds * 1000), reason)]

    def _sink_alarms(self, now: float) -> list[Alarm]:
        """Return an alarm for a call of user code that does not return.

        The sink takes other records in the meantime, so the shard seems to make progress.
        """
        unfinished = self._dependencies.sink.unfinished()
        if unfinished is None or unfinished.call is None:
            self._sink_call.reset()
            return []
        lasting_ms = round(self._sink_call.observe(unfinished.call, now) * 1000)
        is_long = lasting_ms >= self._dependencies.settings.alarm_interval_ms
        return [Alarm(AlarmKind.HANGING, "sink", lasting_ms, unfinished.reason)] if is_long else []

    def _blocked_by(self) -> str:
        return blocked_by(self._alignment)
