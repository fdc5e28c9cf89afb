"""ShardMetrics, the counters and gauges of one shard's reads (A1). The fetcher's shard table owns and reports them."""

from dataclasses import dataclass, field
from typing import Any

from .errors import ThrottledError
from .records import RecordBatch


def _counter(unit: str, description: str) -> Any:
    return field(default=0, metadata={"type": "counter", "unit": unit, "description": description})


def _gauge(unit: str, description: str) -> Any:
    return field(default=0, metadata={"type": "gauge", "unit": unit, "description": description})


@dataclass(slots=True)
class ShardMetrics:
    """Counters and gauges of one shard's reads, with Flink's names where these exist."""

    millis_behind_latest: int = -1
    """Gauge, ms behind the shard's tip at the last successful read; -1 before the first (as in Flink)."""
    number_of_aggregated_records: int = _counter("records", "Kinesis records read")
    number_of_deaggregated_records: int = _counter("records", "user records read, after de-aggregation")
    bytes_read: int = _counter("bytes", "payload read")
    bytes_per_read: int = _gauge("bytes", "payload of the last read")
    reads: int = _counter("reads", "successful reads, including empty ones")
    retries: int = _counter("calls", "failed and retried")
    throttles: int = _counter("calls", "throttled")
    resubscribes: int = _counter("subscriptions", "opened after the first (fan-out)")
    subscriptions_taken_over: int = _counter("subscriptions", "taken over by another caller")
    subscriptions_refused: int = _counter("calls", "refused: consumer in use")
    iterator_refreshes: int = _counter("iterators", "replaced because of age or expiry (polling)")
    foreign_sub_records: int = _counter("records", "sub-records dropped: their hash key is of another shard")
    unchecked_sub_records: int = _counter(
        "records", "such sub-records kept: the stream's record distribution is not known"
    )
    retention_gaps: int = _counter("gaps", "reading continued after records that passed retention unread")
    retention_not_checked: int = _counter(
        "times", "it could not be checked whether records passed the retention unread"
    )
    skipped_records: int = _counter(
        "records", "skipped: no valid value or event time, or rejected by the sink (`flink.deserializer.error=SKIP`)"
    )
    dead_letters: int = _counter(
        "records", "the same, written to the dead-letter sink (`flink.deserializer.error=DEAD_LETTER`)"
    )
    future_event_times: int = _counter("records", "with an event time too far ahead of their arrival")
    unacknowledged: int = _gauge(
        "records", "received from a queue, and neither acknowledged nor given up; 0 for shards"
    )
    failed_acknowledgements: int = _counter("records", "not acknowledged, or not kept from others: they come again")
    duplicates: int = _counter("records", "received again from a queue, of those that are remembered")
    last_failure: Exception | None = None
    """The error of the last call, while it is tried again; None after a successful read."""
    subscribed: int = _gauge("0 or 1", "1 while a fan-out subscription is open")

    def count_read(self, batch: RecordBatch) -> None:
        """Count the batch of a successful read."""
        self.count_response(batch.raw_count, batch.raw_bytes, batch.millis_behind_latest)
        self.number_of_deaggregated_records += len(batch)

    def saw_distance(self, millis_behind_latest: int | None) -> None:
        """Store how far a batch was behind the tip. None leaves the gauge unchanged."""
        if millis_behind_latest is not None:
            self.millis_behind_latest = millis_behind_latest

    def add(self, counter: str, count: int = 1) -> None:
        """Add `count` to one of the counters."""
        setattr(self, counter, getattr(self, counter) + count)

    def saw_subscription(self, is_open: bool) -> None:
        """Store whether a fan-out subscription is open. Called when one was opened or has ended."""
        self.subscribed = int(is_open)

    def count_retry(self, error: Exception) -> None:
        """Count a failed call that is tried again."""
        self.retries += 1
        self.throttles += isinstance(error, ThrottledError)
        self.last_failure = error

    def count_response(self, raw_count: int, raw_bytes: int, millis_behind_latest: int | None) -> None:
        """Count the response of a successful read, but not its user records: one response may become several batches."""
        self.reads += 1
        self.last_failure = None
        self.bytes_read += raw_bytes
        self.bytes_per_read = raw_bytes
        self.number_of_aggregated_records += raw_count
        self.saw_distance(millis_behind_latest)
