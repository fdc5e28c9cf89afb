"""The settings, statistics and metrics of the Kinesis sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recordpublisher.fetcher.metric_types import MetricType
from recordpublisher.publishers.histogram import Histogram
from recordpublisher.publishers.properties.config_fields import of_property, values_of
from recordpublisher.publishers.properties.job_properties import DRAIN_TIMEOUT
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.retry_properties import outage_policy
from recordpublisher.publishers.properties.sink_properties import (
    AGGREGATION_ENABLED,
    AGGREGATION_MAX_COUNT,
    AGGREGATION_MAX_SIZE,
    COLLECTION_MAX_COUNT,
    COLLECTION_MAX_SIZE,
    MAX_CONNECTIONS,
    RATE_LIMIT,
    RECORD_MAX_BUFFERED_TIME,
    SINK_FAIL_ON_ERROR,
    SINK_ORDERING,
    SINK_QUEUE_BYTES,
    SINK_QUEUE_LIMIT,
)
from recordpublisher.publishers.retry import RetryPolicy
from recordpublisher.publishers.service_limits import (
    WRITE_BYTES_PER_SECOND,
    WRITE_RECORDS_PER_SECOND,
)
from recordpublisher.publishers.user_code import check_user_function


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisSinkSettings:
    """The settings of a Kinesis sink. Times are in seconds, sizes in bytes, rates per second and shard."""

    queue_limit: QueueLimit | None
    queue_bytes: int | None = of_property(SINK_QUEUE_BYTES)
    wait_seconds: float = 0.1
    """A write that waits for capacity checks again after this long, in case the limit in records is a function."""
    keeps_key_order: bool
    fails_on_error: bool
    retries: RetryPolicy
    drain_seconds: float = of_property(DRAIN_TIMEOUT, 1000)
    aggregates: bool = of_property(AGGREGATION_ENABLED)
    aggregate_count: int = of_property(AGGREGATION_MAX_COUNT)
    aggregate_bytes: int = of_property(AGGREGATION_MAX_SIZE)
    request_count: int = of_property(COLLECTION_MAX_COUNT)
    request_bytes: int = of_property(COLLECTION_MAX_SIZE)
    linger_seconds: float = of_property(RECORD_MAX_BUFFERED_TIME, 1000)
    records_per_second: float
    bytes_per_second: float
    connections: int = of_property(MAX_CONNECTIONS)
    initial_fraction: float = 1.0
    """Part of the rate limit that is used first for each shard. It is smaller if several writers share the stream."""

    @classmethod
    def of(
        cls,
        properties: Properties,
        queue_limit: QueueLimit | None = None,
        ordering: str | None = None,
        fail_on_error: bool | None = None,
    ) -> KinesisSinkSettings:
        """Return the settings. Arguments override properties. Raises: ConfigurationError if a value is invalid."""
        value = properties.value
        if ordering is not None:
            value = properties.merged({SINK_ORDERING.key: ordering}).value
        rate = value(RATE_LIMIT) / 100
        return cls(
            queue_limit=value(SINK_QUEUE_LIMIT) if queue_limit is None else _checked_limit(queue_limit),
            keeps_key_order=value(SINK_ORDERING) == "PER_KEY",
            fails_on_error=value(SINK_FAIL_ON_ERROR) if fail_on_error is None else fail_on_error,
            retries=outage_policy(properties, base_ms=100, max_ms=2_000),
            records_per_second=WRITE_RECORDS_PER_SECOND * rate,
            bytes_per_second=WRITE_BYTES_PER_SECOND * rate,
            **values_of(cls, properties),
        )


def _checked_limit(given: object) -> QueueLimit:
    is_number = isinstance(given, int) and not isinstance(given, bool) and given > 0
    if not is_number:
        valid = "a whole number above 0, or a function of SinkStatistics"
        check_user_function("queue_limit", given, valid, is_plain=True)
    return given  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class SinkStatistics:
    """The values that a `queue_limit` function receives.

    - `mean_record_bytes`: recent mean of data and key of a user record (0 before the first record).
    - `shards`: open shards of the stream.
    - `outstanding_records`, `outstanding_bytes`: records accepted and not yet acknowledged, and the bytes that they hold in memory.
    """

    mean_record_bytes: float
    shards: int
    outstanding_records: int
    outstanding_bytes: int


QueueLimit = int | Callable[[SinkStatistics], int]
"""Limit in records: a number above 0, or a function of `SinkStatistics` that returns one."""


COUNTER, GAUGE, HISTOGRAM = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM


KINESIS_SINK_METRICS: dict[str, tuple[MetricType, str, str]] = {
    "outstandingRecordsCount": (GAUGE, "records", "user records accepted and not yet acknowledged"),
    "outstandingBytes": (GAUGE, "bytes", "bytes held in memory by the records not yet acknowledged"),
    "queueLimit": (GAUGE, "records", "current limit in records; null: only bytes are limited"),
    "queueLimitBytes": (GAUGE, "bytes", "current limit in bytes"),
    "waitingWrites": (GAUGE, "calls", "`put` and `write` calls that wait for capacity"),
    "openRequests": (GAUGE, "calls", "PutRecords calls that have not ended"),
    "shards": (GAUGE, "shards", "open shards of the stream, as last listed"),
    "meanRecordBytes": (GAUGE, "bytes", "recent mean of data and key of a user record"),
    "failingMs": (GAUGE, "ms", "how long a shard has taken no record, unless it only throttles; 0 while puts succeed"),
    "backpressureCycles": (COUNTER, "checks", "checks for capacity by a waiting write that found none"),
    "numRecordsOut": (COUNTER, "records", "user records acknowledged"),
    "numBytesOut": (COUNTER, "bytes", "bytes of data and keys acknowledged"),
    "numRecordsOutErrors": (COUNTER, "records", "user records that failed for good"),
    "callbackErrors": (COUNTER, "records", "of these, records for which `on_failure` has raised an error"),
    "kinesisRecords": (COUNTER, "records", "Kinesis records acknowledged: fewer than user records with aggregation"),
    "requests": (COUNTER, "calls", "PutRecords calls that ended, failed ones included"),
    "failedRequests": (COUNTER, "calls", "calls that failed as a whole and are retried"),
    "resentRecords": (COUNTER, "records", "Kinesis records sent again"),
    "throttles": (COUNTER, "records", "Kinesis records throttled by a shard"),
    "misroutedRecords": (
        COUNTER,
        "records",
        "user records sent again: their aggregate reached another shard than expected (a reshard)",
    ),
    "shardMapRefreshes": (COUNTER, "calls", "shard listings after the first"),
    "currentSendTimeMs": (GAUGE, "ms", "duration of the last PutRecords call"),
    "sendTimeMs": (HISTOGRAM, "ms", "durations of the PutRecords calls, failed ones included"),
}


class KinesisSinkCounters:
    """The counters of one sink, by the names of `KINESIS_SINK_METRICS`, and the durations of its calls."""

    def __init__(self) -> None:
        self._counts = {name: 0 for name, (kind, *_) in KINESIS_SINK_METRICS.items() if kind is COUNTER}
        self._send_time_ms = 0
        self._send_times = Histogram()

    def continue_from(self, earlier: KinesisSinkCounters) -> None:
        """Continue from the counters of an earlier sink, so that no counter of a producer falls."""
        self._counts, self._send_times = earlier._counts, earlier._send_times
        self._send_time_ms = earlier._send_time_ms

    def add(self, name: str, count: int = 1) -> None:
        """Add `count` to a counter."""
        self._counts[name] += count

    def call_ended(self, seconds: float) -> None:
        """Count a PutRecords call that took this long."""
        self.add("requests")
        self._send_time_ms = round(seconds * 1000)
        self._send_times.add(seconds * 1000)

    def as_dict(self, **gauges: Any) -> dict[str, Any]:
        """Return the given gauges and these counters."""
        times = {"currentSendTimeMs": self._send_time_ms, "sendTimeMs": self._send_times.value()}
        return {**gauges, **self._counts, **times}
