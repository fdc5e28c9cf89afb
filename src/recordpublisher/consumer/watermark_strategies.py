"""Watermark strategies, which derive a shard's watermark from its records. It never falls."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from recordpublisher.publishers.properties.groups.job import OUT_OF_ORDERNESS
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import Record, RecordBatch
from recordpublisher.publishers.user_code import check_user_function


class WatermarkStrategy(ABC):
    """The watermark of one shard. Built as `Strategy(properties)`, once for each shard."""

    def times(self, batch: RecordBatch) -> Sequence[int]:
        """Return the times that the watermark follows, one (epoch ms) for each record. Default: the event times.

        This must not change the strategy, because it may be called again for a part of the batch. An exception makes
        the record a poisoned record (S7). A time too far ahead of the record's arrival is replaced by the arrival
        before `advance` gets it (W12).
        """
        return batch.event_time_column

    @abstractmethod
    def advance(self, event_times: Sequence[int]) -> Sequence[int]:
        """Return the shard's watermark after each record with these `times` (epoch ms). It never falls, even from call to call."""

    @abstractmethod
    def start_at(self, watermark: int) -> None:
        """Continue from a restored or inherited watermark (W5)."""


class BoundedOutOfOrderness(WatermarkStrategy):
    """The highest event time so far, minus the bound of `flink.watermark.outoforderness.millis`."""

    def __init__(self, properties: Properties) -> None:
        self._bound = self._bound_of(properties)
        self._watermark: int | None = None

    def start_at(self, watermark: int) -> None:
        """Continue from `watermark`."""
        self._watermark = watermark

    def advance(self, event_times: Sequence[int]) -> Sequence[int]:
        """Return the running maximum, minus the bound."""
        if not event_times:
            return ()
        lowest = event_times[0] if self._watermark is None else max(event_times[0], self._watermark + self._bound)
        top = lowest  # a plain comparison costs a quarter of accumulate(..., max)
        highest = [top := time if time > top else top for time in event_times]
        self._watermark = highest[-1] - self._bound
        bound = self._bound
        return [time - bound for time in highest] if bound else highest

    def _bound_of(self, properties: Properties) -> int:
        return properties.value(OUT_OF_ORDERNESS)


class Monotonous(BoundedOutOfOrderness):
    """The highest event time so far, for shards that are in order. It does not use the bound for out-of-order records."""

    def _bound_of(self, properties: Properties) -> int:
        return 0


class ArrivalTime(BoundedOutOfOrderness):
    """The latest arrival at the service, minus the bound of `flink.watermark.outoforderness.millis`. It does not use event times."""

    def times(self, batch: RecordBatch) -> Sequence[int]:
        """Return the arrival of each record."""
        return batch.arrival_millis


class AssignedWatermarks(Monotonous):
    """The highest result so far of a user's function from a record to a watermark (epoch ms), so that it never falls."""

    def __init__(self, properties: Properties, assigner: Callable[[Record], int]) -> None:
        super().__init__(properties)
        check_user_function("watermark_assigner", assigner, "a plain function of a Record", is_plain=True)
        self._assigner = assigner

    def times(self, batch: RecordBatch) -> Sequence[int]:
        """Return the function's result for each record."""
        return [int(self._assigner(record)) for record in batch]


def cap_future_event_times(
    event_times: Sequence[int], arrivals: Sequence[int], limit_ms: int
) -> tuple[Sequence[int], int]:
    """Replace event times that are more than `limit_ms` ahead of their arrival by the arrival (W12).

    Return the times, and how many were replaced. A negative limit replaces none.
    """
    if limit_ms < 0 or event_times is arrivals or max(event_times) <= min(arrivals) + limit_ms:
        return event_times, 0
    pairs = list(zip(event_times, arrivals, strict=True))
    capped = sum(time > arrival + limit_ms for time, arrival in pairs)
    return [arrival if time > arrival + limit_ms else time for time, arrival in pairs], capped
