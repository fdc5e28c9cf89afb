"""Watermark strategies: from a shard's event times to its watermark, which never falls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ..publishers.properties import Properties
from ..publishers.property_table import OUT_OF_ORDERNESS


class WatermarkStrategy(ABC):
    """Watches one shard. Built as `Strategy(properties)`, once for each shard."""

    @abstractmethod
    def advance(self, event_times: Sequence[int]) -> Sequence[int]:
        """The shard's watermark after each of these records (epoch ms), never falling from call to call."""

    @abstractmethod
    def start_at(self, watermark: int) -> None:
        """Go on from a restored or inherited watermark (W5)."""


class BoundedOutOfOrderness(WatermarkStrategy):
    """The largest event time seen, less the bound of `flink.watermark.outoforderness.millis`."""

    def __init__(self, properties: Properties) -> None:
        self._bound = properties.value(OUT_OF_ORDERNESS)
        self._watermark: int | None = None

    def start_at(self, watermark: int) -> None:
        """Never fall below `watermark`."""
        self._watermark = watermark

    def advance(self, event_times: Sequence[int]) -> Sequence[int]:
        """A running maximum, less the bound."""
        if not event_times:
            return ()
        floor = event_times[0] if self._watermark is None else max(event_times[0], self._watermark + self._bound)
        top = floor  # a plain comparison costs a quarter of accumulate(..., max)
        highest = [top := time if time > top else top for time in event_times]
        self._watermark = highest[-1] - self._bound
        bound = self._bound
        return [time - bound for time in highest] if bound else highest


def without_absurd_futures(
    event_times: Sequence[int], arrivals: Sequence[int], limit_ms: int
) -> tuple[Sequence[int], int]:
    """Event times for watermarks: those more than `limit_ms` ahead of their arrival count as the arrival; and how many (W12)."""
    if limit_ms < 0 or event_times is arrivals or max(event_times) <= min(arrivals) + limit_ms:
        return event_times, 0
    pairs = list(zip(event_times, arrivals, strict=True))
    absurd = sum(time > arrival + limit_ms for time, arrival in pairs)
    return [arrival if time > arrival + limit_ms else time for time, arrival in pairs], absurd
