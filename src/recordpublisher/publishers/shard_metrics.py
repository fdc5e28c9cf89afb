"""ShardMetrics: counters and gauges of one shard's reads (A1). The fetcher's shard table has and reports them."""

import asyncio
import logging
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .clock import Clock, SystemClock
from .errors import ThrottledError
from .log_fields import about
from .records import RecordBatch
from .user_code import for_log


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
    """The error of the last call while it is retried; None after a successful read."""
    subscribed: int = _gauge("0 or 1", "1 while a fan-out subscription is open")

    def count_read(self, batch: RecordBatch) -> None:
        """Count the batch of a successful read."""
        self.count_response(batch.raw_count, batch.raw_bytes, batch.millis_behind_latest)
        self.number_of_deaggregated_records += len(batch)

    def saw_distance(self, millis_behind_latest: int | None) -> None:
        """Set how far the last batch was behind the tip (ms). None leaves the gauge unchanged."""
        if millis_behind_latest is not None:
            self.millis_behind_latest = millis_behind_latest

    def add(self, counter: str, count: int = 1) -> None:
        """Add `count` to one of the counters."""
        setattr(self, counter, getattr(self, counter) + count)

    def saw_subscription(self, is_open: bool) -> None:
        """Set whether a subscription of enhanced fan-out is open. Called when one was opened or has ended."""
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


# SkippedRecordsLog logs records that cannot be used, at most once a minute. how_to_continue says what to do when such a record ends the
# job.

INTERVAL_SECONDS = 60.0
DEAD_LETTER = "dead letter for"


class SkippedRecordsLog:
    """Logs the first skipped record at once, and after that at most one line a minute, with the number of records since the last line.

    In an event loop the last record is logged when the minute is over, with its age. Elsewhere it is logged with the next record.
    """

    def __init__(self, log: logging.Logger, clock: Clock | None = None) -> None:
        self._log = log
        self._clock = clock or SystemClock()
        self._next_at = float("-inf")
        self._unlogged = 0
        self._last: tuple[str, Mapping[str, object] | None, float] = ("", None, 0.0)

    def skipped(
        self,
        record: str,
        reason: str,
        error: BaseException | None = None,
        shard: str = "",
        sequence_number: str | None = None,
        *,
        how: str = "skipped",
    ) -> bool:
        """Count a skipped record. Return whether it was logged at once, with its traceback.

        - `error`: the error that user code raised, for its traceback.
        - `shard`: the `Shard.key` of the record.
        - `how`: the words before the record's name.
        """
        now = self._clock.monotonic()
        what = f"{how} {record}: {reason}"
        where = about(shard, sequence_number, error) if shard else None
        if now >= self._next_at:
            self._write(what, where, error)
            return True
        self._unlogged += 1
        self._last = what, where, now  # The error is left out, because its traceback would keep the batch in memory.
        if self._unlogged == 1:
            self._write_later(self._next_at - now)
        return False

    def _write(self, what: str, where: Mapping[str, object] | None, error: BaseException | None = None) -> None:
        others = f" ({self._unlogged} others since the last such line)" if self._unlogged else ""
        self._log.warning("%s%s", what, others, exc_info=None if error is None else for_log(error), extra=where)
        self._next_at, self._unlogged = self._clock.monotonic() + INTERVAL_SECONDS, 0

    def _write_later(self, seconds: float) -> None:
        with suppress(RuntimeError):  # Without an event loop the record is logged with the next one.
            asyncio.get_running_loop().call_later(seconds, self._write_last)

    def _write_last(self) -> None:
        if self._unlogged:
            self._unlogged -= 1  # The line names this record, so the count of other records does not include it.
            what, where, at = self._last
            self._write(f"{what} ({self._clock.monotonic() - at:.0f} s ago)", where)


def how_to_continue(stream: str, shard_id: str, sequence_number: str) -> str:
    """Return what a person can do about a bad record that ends the job, for a message."""
    # The command shows the record, because it would end the job again at each start. The names of a plugin may need quotes in a shell.
    shown = shlex.join(["recordpublisher", "tail", stream, "--shard", shard_id, "--from", sequence_number, "-n", "1"])
    return (
        f"look at it with `{shown}`, with --properties and the "
        f"job's file if it has one; flink.deserializer.error = SKIP or DEAD_LETTER continues without it (in Python deserializer_error=)"
    )
