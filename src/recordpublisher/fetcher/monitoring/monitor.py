"""Monitor: looks from time to time for shards that are written to and not emitted, and for a global watermark that stands still (A2)."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from ..alarms import ActiveAlarms, Alarm, AlarmKind
from ..dependencies import FetcherDependencies
from ..shards.shard_table import ShardTable
from ..sink import Sink
from ..watermarks.alignment import Alignment
from .shard_observations import ShardObservations
from .stall_detector import UnchangedTimer, WatermarkStallDetector
from .status_log import waited_for
from .unread_shards import UnreadShardDetector

alarm_log = logging.getLogger("recordpublisher.alarm")
log = logging.getLogger("recordpublisher.fetcher")

LOOKS = 10
"""So many looks in an alarm interval."""
LEAST_SECONDS, MOST_SECONDS = 0.2, 30.0
"""Between two looks."""


class Emitted(Protocol):
    """Who knows how many records were emitted."""

    records: int


class Monitor:
    """Owns the rhythm of the looks. What is seen comes from `ShardObservations`, the decisions are in `unread.py` and `standstill.py`."""

    def __init__(self, parts: FetcherDependencies, table: ShardTable, alignment: Alignment, emitted: Emitted) -> None:
        self._parts = parts
        self._table = table
        self._alignment = alignment
        self._emitted = emitted
        interval_ms = parts.settings.alarm_interval_ms
        self._is_off = interval_ms < 0
        self._seconds = min(max(interval_ms / 1000 / LOOKS, LEAST_SECONDS), MOST_SECONDS)
        self._unread = UnreadShardDetector(interval_ms, 2 * self._seconds)
        self._standstill = WatermarkStallDetector(2 * self._seconds)
        self._alone_for = UnchangedTimer(2 * self._seconds)
        self.sightings = ShardObservations(parts, table, 2 * self._seconds)
        self.board = ActiveAlarms(interval_ms, parts.on_alarm)
        self.retention = Retention(parts)

    @property
    def stands_ms(self) -> int:
        """For how long the global watermark has stood while records went on or were held."""
        return round(self._standstill.seconds * 1000)

    async def run(self) -> None:
        """Look until cancelled; a look that fails leaves what is not known as it was, and never ends the job."""
        while not self._is_off:
            await asyncio.sleep(self._seconds)
            try:
                await self._look()
            except Exception:
                alarm_log.exception("a look for unread shards failed; the job goes on")

    async def _look(self) -> None:
        sights = await self.sightings.gather(self._waited_for())
        unread = self._unread.look(sights, self._parts.clock.monotonic())
        self.board.show([*unread, *self._stalled(), *self._alone()])

    def _stalled(self) -> list[Alarm]:
        """The global watermark, where somebody is there who waits for it: alignment, or a sink that listens to watermarks."""
        parts = self._parts
        entries = list(self._table)
        value, now = self._alignment.global_watermark, parts.clock.monotonic()
        seconds = self._standstill.look(value, entries, self._emitted.records, now)
        is_used = parts.settings.lookahead_ms is not None or type(parts.sink).watermark is not Sink.watermark
        if not is_used or seconds * 1000 < parts.settings.alarm_interval_ms:
            return []
        reason = f"it stands at {value}, waiting for {self._waited_for()}"
        return [Alarm(AlarmKind.STALLED, "global watermark", round(seconds * 1000), reason)]

    def _alone(self) -> list[Alarm]:
        """Not aligned with the others (W10): an alarm at once."""
        if not self._alignment.is_alone:
            self._alone_for.over()
            return []
        seconds = self._alone_for.saw(True, self._parts.clock.monotonic())
        reason = "records are not aligned with those of other subtasks"
        return [Alarm(AlarmKind.TRACKER_UNREACHABLE, "tracker", round(seconds * 1000), reason)]

    def _waited_for(self) -> str:
        return waited_for(self._parts.tracker, self._alignment.holder, self._parts.subtask)


HOUR = 3600.0
SPREAD_SECONDS = 0.1
"""Subtasks ask one after the other: an account has 20 DescribeStreamSummary calls a second."""


class Retention:
    """Owns what is known, ms by stream; nothing where nobody says."""

    def __init__(self, parts: FetcherDependencies) -> None:
        self._parts = parts
        self._known: dict[str, int | None] = {}

    def of(self, stream: str) -> int | None:
        """The retention of a stream, ms; None while it is not known."""
        return self._known.get(stream)

    async def run(self) -> None:
        """Ask now and once an hour, since it can be changed; without a port, never."""
        if self._parts.retention_ms is None:
            return
        await asyncio.sleep(self._parts.subtask * SPREAD_SECONDS)
        while True:
            for stream in self._parts.streams:
                try:
                    self._known[stream] = await self._parts.retention_ms(stream)
                except Exception:
                    log.exception("the retention of %s is not known; the job goes on", stream)
            await asyncio.sleep(HOUR)
