"""The properties of reading one shard: which publisher, from where, fan-out, polling (C1)."""

from __future__ import annotations

from .property_types import boolean, choice, integer, prefix, text

# which publisher, from where
RECORD_PUBLISHER = text(
    "flink.stream.recordpublisher",
    "The publisher that reads the shards: POLLING, EFO, or a plugin's name (P5).",
    "POLLING",
    group="Publisher",
)
INITIAL_POSITION = choice(
    "flink.stream.initpos",
    "Where a new job starts. LATEST is pinned to a timestamp of the server's clock once (P3).",
    "LATEST",
    ("TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"),
    group="Publisher",
)
INITIAL_TIMESTAMP = text(
    "flink.stream.initpos.timestamp",
    "Start for AT_TIMESTAMP: epoch seconds, ISO-8601, or text in the given format.",
    group="Publisher",
)
INITIAL_TIMESTAMP_FORMAT = text(
    "flink.stream.initpos.timestamp.format",
    "Java SimpleDateFormat of the start timestamp.",
    "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    group="Publisher",
)

# fan-out
CONSUMER_NAME = text(
    "flink.stream.efo.consumername",
    "Name of the stream consumer, unique for each independent job; required for LAZY and EAGER.",
    group="Fan-out",
)
REGISTRATION = choice(
    "flink.stream.efo.registration",
    "Who registers the consumer: LAZY at start-up, EAGER at construction, NONE somebody else.",
    "LAZY",
    ("LAZY", "EAGER", "NONE"),
    aliases=("flink.stream.efo.registrar",),
    group="Fan-out",
)
CONSUMER_ARN = prefix(
    "flink.stream.efo.consumerarn.", "ARN of the consumer of a stream; one for each stream with NONE.", group="Fan-out"
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
    "What SubscribeToShard is sent over: HTTP1_1, a connection for each subscription, or HTTP2, many on one (needs the extra http2).",
    "HTTP1_1",
    ("HTTP1_1", "HTTP2"),
    group="Fan-out",
)
INACTIVITY_TIMEOUT = integer(
    "flink.shard.subscribetoshard.inactivity.timeout",
    "A subscription without any event for this long is half open and is opened again (F5; the service sends one about every 5 s).",
    20_000,
    1,
    unit="ms",
    group="Fan-out",
)
UNREAD_TIMEOUT = integer(
    "flink.shard.subscribetoshard.unread.timeout",
    "A subscription left unread for this long under back-pressure is closed and opened again when there is room (F5).",
    60_000,
    1,
    unit="ms",
    group="Fan-out",
)
DEREGISTRATION = choice(
    "flink.stream.efo.deregister",
    "When a LAZY or EAGER consumer is deregistered (F8): LAST_OUT by the last subtask that stops cleanly, or NEVER (by command).",
    "LAST_OUT",
    ("LAST_OUT", "NEVER"),
    group="Fan-out",
)
RECOVERABLE_ERRORS = prefix(
    "flink.shard.consumer.error.recoverable[",
    "Names of further errors that are retried, counted from 0 (FLINK-33260).",
    group="Fan-out",
)

# polling
GETRECORDS_MAX = integer(
    "flink.shard.getrecords.maxrecordcount",
    "Records asked for by one GetRecords call.",
    10_000,
    1,
    10_000,
    unit="records",
    group="Polling",
)
GETRECORDS_INTERVAL = integer(
    "flink.shard.getrecords.intervalmillis",
    "From loop to loop (R1); below the iterator's five minutes.",
    200,
    0,
    299_999,
    unit="ms",
    group="Polling",
)
ADAPTIVE_READS = boolean(
    "flink.shard.adaptivereads",
    "Size each read from the mean record size, so that 2 MiB/s a shard are used well (R1).",
    False,
    group="Polling",
)
