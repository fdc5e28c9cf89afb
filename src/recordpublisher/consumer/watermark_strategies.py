"""Watermark strategies, which compute the watermark of one shard from the records read from it. The watermark never falls.

`fetcher/global_watermark_rules.py` has the rules by which the watermarks of all shards make the global one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from recordpublisher.publishers.properties.job_properties import OUT_OF_ORDERNESS
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import Record, RecordBatch
from recordpublisher.publishers.user_code import check_user_function


class WatermarkStrategy(ABC):
    """Computes the watermark of one shard. Built as `Strategy(properties)`, once for each shard."""

    def times(self, batch: RecordBatch) -> Sequence[int]:
        """Return the times from which the watermark is computed, one for each record (epoch ms). By default these are the event times.

        The method must not change the strategy, because it may be called again for a part of the batch. A record for which it raises is a
        bad (poisoned) record. `advance` receives the record's arrival instead of a time that is too far after it.
        """
        return batch.event_time_column

    @abstractmethod
    def advance(self, event_times: Sequence[int]) -> Sequence[int]:
        """Return the shard's watermark after each of these times (epoch ms). The watermark must never fall, even between two calls."""

    @abstractmethod
    def start_at(self, watermark: int) -> None:
        """Set the watermark with which the shard begins: a restored one, or the lowest watermark of the shard's parents."""


class BoundedOutOfOrderness(WatermarkStrategy):
    """The watermark is the highest event time so far, minus the bound of `flink.watermark.outoforderness.millis`."""

    def __init__(self, properties: Properties) -> None:
        self._bound = self._bound_of(properties)
        self._watermark: int | None = None

    def start_at(self, watermark: int) -> None:
        """Set the watermark with which the shard begins. Later watermarks are not lower."""
        self._watermark = watermark

    def advance(self, event_times: Sequence[int]) -> Sequence[int]:
        """Return, for each record, the highest event time up to this record, minus the bound (epoch ms)."""
        if not event_times:
            return ()
        lowest = event_times[0] if self._watermark is None else max(event_times[0], self._watermark + self._bound)
        top = lowest  # A plain comparison costs a quarter of accumulate(..., max).
        highest = [top := time if time > top else top for time in event_times]
        self._watermark = highest[-1] - self._bound
        bound = self._bound
        return [time - bound for time in highest] if bound else highest

    def _bound_of(self, properties: Properties) -> int:
        return properties.value(OUT_OF_ORDERNESS)


class Monotonous(BoundedOutOfOrderness):
    """The watermark is the highest event time so far. The bound for out-of-order records is not used."""

    def _bound_of(self, properties: Properties) -> int:
        return 0


class ArrivalWatermarks(BoundedOutOfOrderness):
    """The watermark is the latest arrival at the service, minus the bound of `flink.watermark.outoforderness.millis`."""

    def times(self, batch: RecordBatch) -> Sequence[int]:
        """Return the arrival time of each record (epoch ms)."""
        return batch.arrival_millis


class AssignedWatermarks(Monotonous):
    """The watermark is the highest result so far of a user's function, which returns a watermark for a record (epoch ms)."""

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
    """Replace event times that are more than `limit_ms` after their record's arrival by the arrival.

    Return all times, and the number of replaced times. A negative `limit_ms` means that none is replaced.
    """
    if limit_ms < 0 or event_times is arrivals or max(event_times) <= min(arrivals) + limit_ms:
        return event_times, 0
    pairs = list(zip(event_times, arrivals, strict=True))
    capped = sum(time > arrival + limit_ms for time, arrival in pairs)
    return [arrival if time > arrival + limit_ms else time for time, arrival in pairs], capped
