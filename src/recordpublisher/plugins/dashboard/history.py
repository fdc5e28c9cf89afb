"""Keeps the totals of the last minutes, so that a page that is opened later has something to draw."""

import asyncio
import logging
from collections import deque

import msgspec

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import RecordPublisherError

from ..lag.job_snapshot import JobSnapshot, SnapshotSource

log = logging.getLogger("recordpublisher.metrics")
HISTORY_SECONDS = 1_800.0


class HistoryPoint(msgspec.Struct, frozen=True, rename="camel"):
    """The totals at one moment (epoch ms): records written per second, and the largest lag (ms). Unknown values are None."""

    time_ms: int
    records_per_second: float | None = None
    lag_ms: int | None = None


class History:
    """Owns the points of the last half hour: one for each `interval_seconds`, even if no page is open."""

    def __init__(self, source: SnapshotSource, clock: Clock, interval_seconds: float) -> None:
        self._source = source
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._points: deque[HistoryPoint] = deque(maxlen=round(HISTORY_SECONDS / interval_seconds))

    @property
    def points(self) -> list[HistoryPoint]:
        """The points, the oldest first."""
        return [*self._points]

    async def run(self) -> None:
        """Add points until cancelled."""
        while True:
            self._points.append(await self._point())
            await asyncio.sleep(self._interval_seconds)

    async def _point(self) -> HistoryPoint:
        try:
            return point_of(await self._source.snapshot())
        except RecordPublisherError:
            return HistoryPoint(self._clock.now_ms())
        except Exception:
            log.exception("the job cannot be read for the dashboard")
            return HistoryPoint(self._clock.now_ms())


def point_of(snapshot: JobSnapshot) -> HistoryPoint:
    """Return the totals of a snapshot."""
    return HistoryPoint(snapshot.time_ms, snapshot.records_per_second, snapshot.lag_ms)
