"""The properties of the Kinesis sink (C1, K): its own, and the keys of the KPL that Flink's producer passes through."""

from __future__ import annotations

from .property_types import boolean, choice, integer, optional_integer, text
from .retries import retry_properties

_GROUP = "Kinesis sink"
MAX_REQUEST_RECORDS = 500
"""Records of one PutRecords call (service limit)."""
MAX_REQUEST_BYTES = 10 * 2**20
"""Data and keys of one PutRecords call (service limit)."""

SINK_STREAM = text(
    "flink.sink.kinesis.stream", "Stream that a Kinesis sink named by a property writes to; name or ARN.", group=_GROUP
)
SINK_QUEUE_LIMIT = optional_integer(
    "flink.sink.kinesis.queue.limit",
    "Unacknowledged records at which the writer waits (K1); not set: as many as the bytes allow.",
    1,
    unit="records",
    group=_GROUP,
    connector="2147483647",
)
SINK_QUEUE_BYTES = optional_integer(
    "flink.sink.kinesis.queue.bytes",
    "The same in bytes, as held in memory (K1); not set: 10 MB for each shard, 128 MiB at most.",
    1,
    unit="bytes",
    group=_GROUP,
)
SINK_WAIT_INTERVAL = integer(
    "flink.sink.kinesis.wait.interval",
    "A waiting writer checks again after this long, even if nothing was acknowledged (K1).",
    100,
    1,
    unit="ms",
    group=_GROUP,
)
SINK_ORDERING = choice(
    "flink.sink.kinesis.ordering",
    "NONE, the order of PutRecords, or PER_KEY: one unacknowledged Kinesis record for each partition key (K2).",
    "NONE",
    ("NONE", "PER_KEY"),
    group=_GROUP,
)
SINK_FAIL_ON_ERROR = boolean(
    "flink.sink.kinesis.failonerror",
    "Whether a record that cannot be put fails the sink (K3); otherwise it is passed to the callback, counted and logged.",
    default=True,
    group=_GROUP,
    connector="false",
)
PUT_RETRIES = retry_properties(
    "flink.sink.kinesis.putrecords", "PutRecords for one record", 50, 100, 2_000, group=_GROUP
)
AGGREGATION_ENABLED = boolean(
    "AggregationEnabled",
    "Whether records are put in KPL aggregates (K4).",
    default=False,
    group=_GROUP,
    connector="true",
)
AGGREGATION_MAX_COUNT = integer(
    "AggregationMaxCount",
    "Records in one aggregate.",
    4_294_967_295,
    1,
    unit="records",
    group=_GROUP,
    aliases=("aws.producer.aggregationMaxCount",),
)
AGGREGATION_MAX_SIZE = integer(
    "AggregationMaxSize", "Size of one aggregate.", 51_200, 64, 2**20, unit="bytes", group=_GROUP
)
COLLECTION_MAX_COUNT = integer(
    "CollectionMaxCount",
    "Kinesis records in one PutRecords call.",
    MAX_REQUEST_RECORDS,
    1,
    MAX_REQUEST_RECORDS,
    unit="records",
    group=_GROUP,
    aliases=("aws.producer.collectionMaxCount",),
)
COLLECTION_MAX_SIZE = integer(
    "CollectionMaxSize",
    "Data and keys in one PutRecords call; a larger record is sent alone.",
    5 * 2**20,
    1,
    MAX_REQUEST_BYTES,
    unit="bytes",
    group=_GROUP,
)
RECORD_MAX_BUFFERED_TIME = integer(
    "RecordMaxBufferedTime",
    "How long a record waits for others to fill a call or an aggregate (K1).",
    100,
    0,
    unit="ms",
    group=_GROUP,
)
RATE_LIMIT = integer(
    "RateLimit",
    "Rate limit for each shard, in percent of its capacity (1,000 records and 1 MiB a second).",
    100,
    1,
    unit="%",
    group=_GROUP,
)
MAX_CONNECTIONS = integer("MaxConnections", "PutRecords calls at a time.", 24, 1, 256, unit="calls", group=_GROUP)
