"""The properties of publishers: which one, the initial position, fan-out and polling (C1)."""

from __future__ import annotations

from .property_types import boolean, choice, integer, optional_integer, prefix, text

# which publisher, from where
RECORD_PUBLISHER = text(
    "flink.stream.recordpublisher",
    "The publisher that reads the shards: POLLING, EFO, DYNAMODB_STREAMS, or a plugin's name (P5).",
    "POLLING",
    argument="publisher",
    group="Publisher",
)
INITIAL_POSITION = choice(
    "flink.stream.initpos",
    "Where a new job starts. LATEST is turned into a timestamp of the service's clock once (P3).",
    "LATEST",
    ("TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"),
    note="with flink.stream.initpos.timestamp",
    argument="start",
    group="Publisher",
)
INITIAL_TIMESTAMP = text(
    "flink.stream.initpos.timestamp",
    "Start for AT_TIMESTAMP: epoch seconds, ISO-8601, or text in the given format.",
    argument="start_timestamp",
    group="Publisher",
)
INITIAL_TIMESTAMP_FORMAT = text(
    "flink.stream.initpos.timestamp.format",
    "Java SimpleDateFormat of the start timestamp, with a year.",
    "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    argument="start_timestamp_format",
    group="Publisher",
)

# fan-out
CONSUMER_NAME = text(
    "flink.stream.efo.consumername",
    "Name of the stream consumer, unique for each independent job; required for LAZY and EAGER.",
    argument="consumer_name",
    group="Fan-out",
)
REGISTRATION = choice(
    "flink.stream.efo.registration",
    "When the consumer is registered: LAZY at start-up, EAGER at construction, NONE not by this job.",
    "LAZY",
    ("LAZY", "EAGER", "NONE"),
    aliases=("flink.stream.efo.registrar",),
    group="Fan-out",
)
CONSUMER_ARN = prefix(
    "flink.stream.efo.consumerarn.", "ARN of the consumer of a stream; one for each stream with NONE.", group="Fan-out"
)
CONSUMER_TAGS = text(
    "flink.stream.efo.tags",
    "Tags of a consumer that this job registers, for cost reports and access rights: key=value, separated by commas.",
    group="Fan-out",
)
REGISTER_TIMEOUT = integer(
    "flink.stream.registerstreamconsumer.timeout",
    "How long to wait for the consumer to become ACTIVE.",
    60,
    1,
    unit="s",
    group="Fan-out",
)
DEREGISTER_TIMEOUT = integer(
    "flink.stream.deregisterstreamconsumer.timeout",
    "How long to wait for a deregistration.",
    60,
    1,
    unit="s",
    group="Fan-out",
)
SUBSCRIBE_TIMEOUT = integer(
    "flink.shard.subscribetoshard.timeout", "Deadline for opening a subscription.", 60, 1, unit="s", group="Fan-out"
)
HTTP_PROTOCOL = choice(
    "aws.http.protocol.version",
    "Protocol of SubscribeToShard: HTTP1_1 with a connection for each subscription, or HTTP2 with many on one (needs the extra http2).",
    "HTTP1_1",
    ("HTTP1_1", "HTTP2"),
    group="Fan-out",
)
INACTIVITY_TIMEOUT = integer(
    "flink.shard.subscribetoshard.inactivity.timeout",
    "A subscription without an event for this long is considered half open, and is reopened (F5; the service sends one about every 5 s).",
    20_000,
    1,
    unit="ms",
    group="Fan-out",
)
UNREAD_TIMEOUT = integer(
    "flink.shard.subscribetoshard.unread.timeout",
    "A subscription left unread for this long under back-pressure is closed, and reopened when there is capacity (F5).",
    60_000,
    1,
    unit="ms",
    group="Fan-out",
)
DEREGISTRATION = choice(
    "flink.stream.efo.deregister",
    "When a LAZY or EAGER consumer is deregistered (F8): LAST_OUT by the last subtask of a process that stops cleanly, with ELASTIC by "
    "the last process of the group; NEVER only by command. On Spark a query never does: `rp.spark.ConsumerDeregistration` does.",
    "LAST_OUT",
    ("LAST_OUT", "NEVER"),
    group="Fan-out",
)
RECOVERABLE_ERRORS = prefix(
    "flink.shard.consumer.error.recoverable[",
    "Names of further errors that are retried, indexed from 0 (FLINK-33260).",
    group="Fan-out",
)

# polling
GETRECORDS_MAX = integer(
    "flink.shard.getrecords.maxrecordcount",
    "Most records that one GetRecords call requests.",
    10_000,
    1,
    10_000,
    unit="records",
    group="Polling",
)
GETRECORDS_INTERVAL = integer(
    "flink.shard.getrecords.intervalmillis",
    "Interval from the start of one read to the start of the next (R1); less than the iterator's five minutes.",
    200,
    0,
    299_999,
    unit="ms",
    group="Polling",
)
TIP_INTERVAL = optional_integer(
    "flink.shard.getrecords.tip.intervalmillis",
    "Interval after an empty read at the shard's tip, until a record arrives: leaves reads of a quiet shard to other readers. Not set: "
    "flink.shard.getrecords.intervalmillis. More than 5 s between reads would not count in full as idle time (W3).",
    200,
    5_000,
    unit="ms",
    group="Polling",
)
ADAPTIVE_READS = boolean(
    "flink.shard.adaptivereads",
    "Set the limit of each read from the mean record size, to use the 2 MiB/s of a shard (R1).",
    False,
    group="Polling",
)
DYNAMODB_EMPTY_READS = integer(
    "flink.dynamodb.tip.empty.reads",
    "Empty responses in a row after which a shard counts as read to its tip, since the service does not return how far behind a reader is.",
    10,
    1,
    unit="reads",
    group="DynamoDB Streams",
)
