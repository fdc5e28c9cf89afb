"""ShardMetrics, the counters and gauges of one shard. The fetcher keeps one for each shard, and reports them."""

from dataclasses import dataclass, field, fields
from typing import Any

from .errors import ThrottledError
from .histogram import Histogram
from .records import RecordBatch


def _counter(unit: str, description: str, *, is_summed: bool = False, shown: str = "", loss: str = "") -> Any:
    """Declare a counter. Metrics exporters, snapshots of a job and the reference of metrics then also have it.

    - `is_summed`: whether the worker has a metric with the sum over all shards since its start, including shards that it no longer owns.
    - `shown`: the title of that sum on the dashboard and in `lag --watch`. A counter with a title is summed.
    - `loss`: a text for users if records are lost or left out whenever the counter is not 0.
    """
    how = {"is_summed": is_summed or bool(shown), "shown": shown, "loss": loss}
    return field(default=0, metadata={"type": "counter", "unit": unit, "description": description, **how})


def _gauge(unit: str, description: str) -> Any:
    return field(default=0, metadata={"type": "gauge", "unit": unit, "description": description})


@dataclass(slots=True)
class ShardMetrics:
    """Counters and gauges of one shard. They have Flink's names if Flink has them.

    The publisher, the consumer and the fetcher change them. A sink adds to a counter by `SinkContext.count`.
    """

    millis_behind_latest: int = -1
    """Gauge, ms behind the shard's tip at the last successful read; -1 before the first (as in Flink)."""
    number_of_aggregated_records: int = _counter("records", "Kinesis records read")
    number_of_deaggregated_records: int = _counter("records", "user records read, after de-aggregation")
    bytes_read: int = _counter("bytes", "payload read")
    bytes_per_read: int = _gauge("bytes", "payload of the last read")
    reads: int = _counter("reads", "successful reads, including empty ones")
    retries: int = _counter("calls", "calls that failed and were retried")
    throttles: int = _counter("calls", "calls that the service throttled")
    resubscribes: int = _counter("subscriptions", "subscriptions opened after the first one (fan-out)")
    subscriptions_taken_over: int = _counter("subscriptions", "subscriptions that another caller has taken over")
    subscriptions_refused: int = _counter("calls", "subscriptions refused because the consumer is in use")
    subscribed: int = _gauge("0 or 1", "1 while a fan-out subscription is open")
    iterator_refreshes: int = _counter("iterators", "iterators replaced because of age or expiry (polling)")
    foreign_sub_records: int = _counter(
        "records",
        "sub-records of aggregates that were dropped, because their hash key belongs to another shard. The KPL puts them again; those "
        "of another producer are lost",
        loss="records of aggregates were dropped; they are lost unless their producer puts them again, as the KPL does",
    )
    unchecked_sub_records: int = _counter(
        "records",
        "sub-records whose hash key belongs to another shard, and that were kept because the stream's record distribution is not known",
    )
    retention_gaps: int = _counter(
        "gaps",
        "gaps: records that passed retention unread, after which reading continued",
        loss="records passed retention unread, and are lost (`flink.state.dataloss=CONTINUE`)",
    )
    retention_not_checked: int = _counter(
        "times",
        "times that the job could not check whether records passed the retention unread",
        loss="records may be lost, because a stream was not read for longer than its retention, and was empty then",
    )
    skipped_records: int = _counter(
        "records",
        "records skipped: no valid value or event time, or rejected by the sink (`flink.deserializer.error=SKIP`), or skipped by `MapSink`",
        shown="skipped",
        loss="records were left out, and are written nowhere (`flink.deserializer.error=SKIP`)",
    )
    dead_letters: int = _counter(
        "records",
        "records that went to the dead-letter sink; SKIP would leave them out (`flink.deserializer.error=DEAD_LETTER`)",
        shown="dead letters",
    )
    late_after_idle: int = _counter(
        "records",
        "late records of a shard that was idle or excluded before: below the global watermark, although in order in their shard",
        is_summed=True,
    )
    late_after_takeover: int = _counter(
        "records",
        "records below the global watermark that were read again because a dead worker of the group had not stored their position",
        is_summed=True,
    )
    future_event_times: int = _counter(
        "records", "records whose event time was too far ahead of their arrival (`flink.watermark.future.limit`)"
    )
    unacknowledged: int = _gauge(
        "records", "records received from a queue, and neither acknowledged nor released; 0 for shards"
    )
    failed_acknowledgements: int = _counter(
        "records", "records of a queue that could not be acknowledged, or kept from others: they are delivered again"
    )
    duplicates: int = _counter("records", "records received again from a queue while the job still remembers them")
    worker_read_durations: Histogram = field(default_factory=Histogram)
    """How long GetRecords calls took (ms). All shards of a worker have the same histogram."""
    last_failure: Exception | None = None
    """The error of the last call, while it is retried. None after a successful read."""

    def count_read(self, batch: RecordBatch) -> None:
        """Count the batch of a successful read."""
        self.count_response(batch.raw_count, batch.raw_bytes, batch.millis_behind_latest)
        self.number_of_deaggregated_records += len(batch)

    def saw_distance(self, millis_behind_latest: int | None) -> None:
        """Set how far the last batch was behind the tip (ms). None leaves the gauge unchanged."""
        if millis_behind_latest is not None:
            self.millis_behind_latest = millis_behind_latest

    def saw_duration(self, milliseconds: float) -> None:
        """Count how long a successful read took (ms)."""
        self.worker_read_durations.add(milliseconds)

    def add(self, counter: str, count: int = 1) -> None:
        """Add `count` to the counter with this name."""
        setattr(self, counter, getattr(self, counter) + count)

    def saw_subscription(self, is_open: bool) -> None:
        """Set whether a subscription of enhanced fan-out is open. Called when one was opened or has ended."""
        self.subscribed = int(is_open)

    def count_retry(self, error: Exception) -> None:
        """Count a failed call that is made again."""
        self.retries += 1
        self.throttles += isinstance(error, ThrottledError)
        self.last_failure = error

    def count_response(self, raw_count: int, raw_bytes: int, millis_behind_latest: int | None) -> None:
        """Count the response of a successful read. Its user records are counted with the batches that are made of it."""
        self.reads += 1
        self.last_failure = None
        self.bytes_read += raw_bytes
        self.bytes_per_read = raw_bytes
        self.number_of_aggregated_records += raw_count
        self.saw_distance(millis_behind_latest)


SUMMED_COUNTERS = tuple(each.name for each in fields(ShardMetrics) if each.metadata.get("is_summed"))
"""The counters that are summed over all shards of a worker."""
