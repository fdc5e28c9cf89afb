"""Declares the properties of the Kinesis sink (K): its own, and the keys of the KPL that Flink's producer passes through."""

from recordpublisher.publishers.service_limits import PUT_RECORDS_BYTES, PUT_RECORDS_RECORDS

from ..property_types import PropertyGroup

KINESIS_SINK = PropertyGroup("Kinesis sink")
SINK_STREAM = KINESIS_SINK.text(
    "flink.sink.kinesis.stream", "Stream that a Kinesis sink named by a property writes to; name or ARN."
)
SINK_QUEUE_LIMIT = KINESIS_SINK.optional_integer(
    "flink.sink.kinesis.queue.limit",
    "Unacknowledged records at which the writer waits; not set: as many as the bytes allow.",
    minimum=1,
    unit="records",
    connector="2147483647",
)
SINK_QUEUE_BYTES = KINESIS_SINK.optional_integer(
    "flink.sink.kinesis.queue.bytes",
    "The same in bytes, as held in memory; not set: 10 MB for each shard, 128 MiB at most.",
    minimum=1,
    unit="bytes",
)
SINK_WAIT_INTERVAL = KINESIS_SINK.integer(
    "flink.sink.kinesis.wait.interval",
    "A waiting writer checks again after this long.",
    100,
    minimum=1,
    unit="ms",
)
SINK_ORDERING = KINESIS_SINK.choice(
    "flink.sink.kinesis.ordering",
    "NONE, the order of PutRecords, or PER_KEY: one unacknowledged Kinesis record for each partition key.",
    "NONE",
    ("NONE", "PER_KEY"),
)
SINK_FAIL_ON_ERROR = KINESIS_SINK.boolean(
    "flink.sink.kinesis.failonerror",
    "Whether a record that cannot be put fails the sink; else it goes to the callback or the job's dead letters, counted and logged.",
    default=True,
    connector="false",
)
AGGREGATION_ENABLED = KINESIS_SINK.boolean(
    "AggregationEnabled", "Whether records are put in KPL aggregates.", default=False, connector="true"
)
AGGREGATION_MAX_COUNT = KINESIS_SINK.integer(
    "AggregationMaxCount",
    "Records in one aggregate.",
    4_294_967_295,
    minimum=1,
    unit="records",
    aliases=("aws.producer.aggregationMaxCount",),
)
AGGREGATION_MAX_SIZE = KINESIS_SINK.integer(
    "AggregationMaxSize", "Size of one aggregate.", 51_200, minimum=64, maximum=2**20, unit="bytes"
)
COLLECTION_MAX_COUNT = KINESIS_SINK.integer(
    "CollectionMaxCount",
    "Kinesis records in one PutRecords call.",
    PUT_RECORDS_RECORDS,
    minimum=1,
    maximum=PUT_RECORDS_RECORDS,
    unit="records",
    aliases=("aws.producer.collectionMaxCount",),
)
COLLECTION_MAX_SIZE = KINESIS_SINK.integer(
    "CollectionMaxSize",
    "Data and keys in one PutRecords call; a larger record is sent alone.",
    5 * 2**20,
    minimum=1,
    maximum=PUT_RECORDS_BYTES,
    unit="bytes",
)
RECORD_MAX_BUFFERED_TIME = KINESIS_SINK.integer(
    "RecordMaxBufferedTime",
    "Linger: how long a record waits for others to fill a call or an aggregate.",
    100,
    minimum=0,
    unit="ms",
)
RATE_LIMIT = KINESIS_SINK.integer(
    "RateLimit",
    "Rate limit for each shard, in percent of its capacity (1,000 records and 1 MiB a second).",
    100,
    minimum=1,
    unit="%",
)
MAX_CONNECTIONS = KINESIS_SINK.integer(
    "MaxConnections", "PutRecords calls at a time.", 24, minimum=1, maximum=256, unit="calls"
)
