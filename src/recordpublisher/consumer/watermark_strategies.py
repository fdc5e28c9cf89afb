"""Watermark strategies: from a shard's records to its watermark, which never falls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import OUT_OF_ORDERNESS
from recordpublisher.publishers.records import Record, RecordBatch


class WatermarkStrategy(ABC):
    """Watches one shard. Built as `Strategy(properties)`, once for each shard."""

    def times(self, batch: RecordBatch) -> Sequence[int]:
        """What the strategy goes by, one time (epoch ms) for each record. Default: the event times.

        Changes nothing: it may be asked again about a part of the batch. An exception counts as a poisoned record (S7); a time too far
        ahead of its record's arrival counts as the arrival before `advance` sees it (W12).
        """
        return batch.event_time_column

    @abstractmethod
    def advance(self, event_times: Sequence[int]) -> Sequence[int]:
        """The shard's watermark after each of the records with these `times` (epoch ms), never falling from call to call."""

    @abstractmethod
    def start_at(self, watermark: int) -> None:
        """Go on from a restored or inherited watermark (W5)."""


class BoundedOutOfOrderness(WatermarkStrategy):
    """The largest event time seen, less the bound of `flink.watermark.outoforderness.millis`."""

    def __init__(self, properties: Properties) -> None:
        self._bound = self._bound_of(properties)
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

    def _bound_of(self, properties: Properties) -> int:
        return properties.value(OUT_OF_ORDERNESS)


class Monotonous(BoundedOutOfOrderness):
    """The largest event time seen: for shards that are in order. The bound for disorder plays no part."""

    def _bound_of(self, properties: Properties) -> int:
        return 0


class ArrivalTime(BoundedOutOfOrderness):
    """The latest arrival at the service, less the bound of `flink.watermark.outoforderness.millis`, whatever the event times are."""

    def times(self, batch: RecordBatch) -> Sequence[int]:
        """The arrivals."""
        return batch.arrival_millis


class AssignedWatermarks(Monotonous):
    """What a user's function says of each record (epoch ms), held so that it never falls."""

    def __init__(self, properties: Properties, assigner: Callable[[Record], int]) -> None:
        super().__init__(properties)
        self._assigner = assigner

    def times(self, batch: RecordBatch) -> Sequence[int]:
        """The watermark that the function sees in each record."""
        return [int(self._assigner(record)) for record in batch]


def cap_future_event_times(
    event_times: Sequence[int], arrivals: Sequence[int], limit_ms: int
) -> tuple[Sequence[int], int]:
    """Event times for watermarks: those more than `limit_ms` ahead of their arrival count as the arrival; and how many (W12)."""
    if limit_ms < 0 or event_times is arrivals or max(event_times) <= min(arrivals) + limit_ms:
        return event_times, 0
    pairs = list(zip(event_times, arrivals, strict=True))
    absurd = sum(time > arrival + limit_ms for time, arrival in pairs)
    return [arrival if time > arrival + limit_ms else time for time, arrival in pairs], absurd
