"""The metrics of the Kinesis sink: type, unit and meaning of each (A1). The reference page has the same rows."""

from __future__ import annotations

from recordpublisher.fetcher.metric_types import MetricType

COUNTER, GAUGE = MetricType.COUNTER, MetricType.GAUGE

KINESIS_SINK_METRICS: dict[str, tuple[MetricType, str, str]] = {
    "outstandingRecordsCount": (GAUGE, "records", "accepted and not yet acknowledged"),
    "outstandingBytes": (GAUGE, "bytes", "of the records not yet acknowledged, as held in memory"),
    "queueLimit": (GAUGE, "records", "current limit in records; null: only bytes are limited"),
    "queueLimitBytes": (GAUGE, "bytes", "current limit in bytes"),
    "waitingWrites": (GAUGE, "calls", "`put` and `write` calls that wait for capacity"),
    "openRequests": (GAUGE, "calls", "PutRecords calls that have not ended"),
    "shards": (GAUGE, "shards", "open shards of the stream, as last listed"),
    "meanRecordBytes": (GAUGE, "bytes", "recent mean of data and key of a user record"),
    "backpressureCycles": (COUNTER, "checks", "checks for capacity by a waiting write that found none"),
    "numRecordsOut": (COUNTER, "records", "user records acknowledged"),
    "numBytesOut": (COUNTER, "bytes", "bytes of data and keys acknowledged"),
    "numRecordsOutErrors": (COUNTER, "records", "user records rejected or given up"),
    "kinesisRecords": (COUNTER, "records", "Kinesis records acknowledged: fewer than user records with aggregation"),
    "requests": (COUNTER, "calls", "PutRecords calls that ended, failed ones included"),
    "failedRequests": (COUNTER, "calls", "calls that failed as a whole and are retried"),
    "retries": (COUNTER, "records", "Kinesis records sent again"),
    "throttles": (COUNTER, "records", "Kinesis records throttled by a shard"),
    "misroutedRecords": (
        COUNTER,
        "records",
        "user records sent again: their aggregate reached another shard than expected (a reshard)",
    ),
    "shardMapRefreshes": (COUNTER, "calls", "shard listings after the first"),
    "currentSendTimeMs": (GAUGE, "ms", "duration of the last PutRecords call"),
}
