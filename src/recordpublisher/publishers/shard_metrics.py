"""ShardMetrics: the counters and gauges of one shard's reads (A1). The fetcher's shard table owns and reports them."""

from dataclasses import dataclass

from .errors import ThrottledError
from .records import RecordBatch


@dataclass(slots=True)
class ShardMetrics:
    """Counters and gauges of one shard's reads; Flink's names where they exist."""

    millis_behind_latest: int = -1
    """Gauge, ms behind the shard's tip at the last successful read; -1 before the first (as in Flink)."""
    number_of_aggregated_records: int = 0
    """Counter: Kinesis records read."""
    number_of_deaggregated_records: int = 0
    """Counter: user records read."""
    bytes_read: int = 0
    """Counter: payload bytes read."""
    bytes_per_read: int = 0
    """Gauge: payload bytes of the last successful read."""
    reads: int = 0
    """Counter: successful reads, empty ones included."""
    retries: int = 0
    """Counter: failed calls that were retried."""
    throttles: int = 0
    """Counter: calls refused by a limit."""
    resubscribes: int = 0
    """Counter: subscriptions opened after the first."""
    subscriptions_taken_over: int = 0
    """Counter: subscriptions that another caller took over (F10)."""
    subscriptions_refused: int = 0
    """Counter: calls to subscribe that were refused since the consumer is in use."""
    iterator_refreshes: int = 0
    """Counter: shard iterators replaced because of age or expiry."""
    foreign_sub_records: int = 0
    """Counter: sub-records dropped because their hash key belongs to another shard (S4)."""
    unchecked_sub_records: int = 0
    """Counter: such sub-records that were kept, since the stream's record distribution is not known (S4)."""
    retention_gaps: int = 0
    """Counter: times that reading continued after records that had passed the stream's retention unread (S5)."""
    retention_not_checked: int = 0
    """Counter: restarts for which it is not known whether unread records had passed the stream's retention (S5)."""
    skipped_records: int = 0
    """Counter: records without a readable value or time that were skipped (S7)."""
    dead_letters: int = 0
    """Counter: records written to the dead-letter sink (S7)."""
    future_event_times: int = 0
    """Counter: event times too far ahead of their arrival to move the watermark (W12)."""
    unacknowledged: int = 0
    """Gauge: records that were received of a source without positions, and are neither acknowledged nor given up."""
    failed_acknowledgements: int = 0
    """Counter: records whose acknowledgement, or longer or shorter visibility, failed: they come again."""
    duplicates: int = 0
    """Counter: records that were received again."""
    last_failure: Exception | None = None
    """The error of the last call, while it is tried again; None after a successful read."""
    subscribed: int = 0
    """Gauge: 1 while a fan-out subscription is open."""

    def count_read(self, batch: RecordBatch) -> None:
        """Count the batch of a successful read."""
        self.count_response(batch.raw_count, batch.raw_bytes, batch.millis_behind_latest)
        self.number_of_deaggregated_records += len(batch)

    def saw_distance(self, millis_behind_latest: int | None) -> None:
        """A batch was this far behind the tip; None: it does not tell."""
        if millis_behind_latest is not None:
            self.millis_behind_latest = millis_behind_latest

    def add(self, counter: str, count: int = 1) -> None:
        """Add to one of the counters."""
        setattr(self, counter, getattr(self, counter) + count)

    def saw_subscription(self, is_open: bool) -> None:
        """A fan-out subscription was opened, or has ended."""
        self.subscribed = int(is_open)

    def count_retry(self, error: Exception) -> None:
        """Count a failed call that is tried again."""
        self.retries += 1
        self.throttles += isinstance(error, ThrottledError)
        self.last_failure = error

    def count_response(self, raw_count: int, raw_bytes: int, millis_behind_latest: int | None) -> None:
        """Count the response of a successful read, but not its user records: it may become several batches."""
        self.reads += 1
        self.last_failure = None
        self.bytes_read += raw_bytes
        self.bytes_per_read = raw_bytes
        self.number_of_aggregated_records += raw_count
        self.saw_distance(millis_behind_latest)
