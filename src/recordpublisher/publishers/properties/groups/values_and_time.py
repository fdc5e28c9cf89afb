"""Declares the properties of deserialisation, event time and watermarks."""

from ..property_types import PropertyGroup

VALUES_AND_TIME = PropertyGroup("Values and time")
DESERIALIZER = VALUES_AND_TIME.text(
    "flink.deserializer",
    "How a record becomes a value: bytes, text, json, avro, protobuf, glue, or a plugin's name; or `module:name` of a "
    "type or function.",
    "bytes",
)
COMPRESSION = VALUES_AND_TIME.choice(
    "flink.deserializer.compression",
    "How payloads are compressed. ZSTD and SNAPPY (block format) need the extra `compression`.",
    "NONE",
    ("NONE", "GZIP", "ZSTD", "SNAPPY"),
)
MAX_DECOMPRESSED_BYTES = VALUES_AND_TIME.integer(
    "flink.deserializer.decompressed.max.bytes",
    "The largest decompressed payload; a larger one is a bad record.",
    16 * 2**20,
    minimum=1,
    maximum=2**30,
    unit="bytes",
)
TIMESTAMP_FIELD = VALUES_AND_TIME.text(
    "flink.watermark.timestamp.field", "JSON field with the event time, epoch ms or ISO-8601. Not set: arrival time."
)
OUT_OF_ORDERNESS = VALUES_AND_TIME.integer(
    "flink.watermark.outoforderness.millis",
    "How far the watermark is behind the event times: the out-of-orderness within a shard.",
    0,
    unit="ms",
)
FUTURE_LIMIT = VALUES_AND_TIME.integer(
    "flink.watermark.future.limit",
    "An event time further ahead of its arrival counts as the arrival time for watermarks; -1 off.",
    3_600_000,
    also=(-1,),
    unit="ms",
)
WATERMARK_STRATEGY = VALUES_AND_TIME.text(
    "flink.watermark.strategy",
    "From event times to watermarks: BOUNDED, MONOTONOUS (no disorder), ARRIVAL (from arrival times) or a plugin's name.",
    "BOUNDED",
)
LOOKAHEAD = VALUES_AND_TIME.optional_integer(
    "flink.watermark.lookahead.millis",
    "Event-time alignment: how far a record's watermark may be ahead of the global one. Not set: off; 0 is allowed.",
    unit="ms",
    connector="0, raised to three sync intervals",
)
MAX_LAG = VALUES_AND_TIME.optional_integer(
    "flink.watermark.alignment.max.lag",
    "A shard whose next record is further than this behind the most advanced shard is not waited for. Not set: off.",
    minimum=1,
    unit="ms",
)
IDLE_INTERVAL = VALUES_AND_TIME.integer(
    "flink.shard.idle.interval",
    "Time without records after which a shard is idle; -1 waits for every shard.",
    -1,
    minimum=1,
    also=(-1,),
    unit="ms",
)
SYNC_INTERVAL = VALUES_AND_TIME.integer(
    "flink.watermark.sync.interval",
    "Interval of refreshes of the global watermark.",
    1_000,
    minimum=1,
    unit="ms",
    connector="30000",
)
EMIT_INTERVAL = VALUES_AND_TIME.integer(
    "flink.watermark.emit.interval",
    "Shortest interval between two watermarks that a sink gets.",
    200,
    minimum=0,
    unit="ms",
)
TRACKER = VALUES_AND_TIME.plugin_name(
    "flink.watermark.tracker",
    "Tracker of the global watermark: IN_PROCESS, TCP, or a plugin's name.",
    "IN_PROCESS",
)
TRACKER_ADDRESS = VALUES_AND_TIME.text("flink.watermark.tracker.address", "host:port of the tracker; TCP needs it.")
TRACKER_TOKEN = VALUES_AND_TIME.text(
    "flink.watermark.tracker.token", "Token with which the tracker was started; TCP needs it.", secret=True
)
TRACKER_TLS_CA = VALUES_AND_TIME.text(
    "flink.watermark.tracker.tls.ca",
    "File of CA certificates (PEM) that the tracker's certificate is checked with. Not set: no TLS.",
)
TRACKER_TLS_CERTIFICATE = VALUES_AND_TIME.text(
    "flink.watermark.tracker.tls.certificate",
    "File of this job's certificate (PEM), for a tracker that asks clients for one.",
)
TRACKER_TLS_KEY = VALUES_AND_TIME.text(
    "flink.watermark.tracker.tls.key",
    "File of the private key of flink.watermark.tracker.tls.certificate (PEM, without a password).",
)
TRACKER_TIMEOUT = VALUES_AND_TIME.integer(
    "flink.watermark.tracker.timeout",
    "A subtask that has not reported for this long is excluded; at least three sync intervals.",
    30_000,
    minimum=1,
    unit="ms",
)
STARTUP_TIMEOUT = VALUES_AND_TIME.integer(
    "flink.watermark.startup.timeout",
    "How long the first value waits for every expected subtask.",
    60_000,
    minimum=1,
    unit="ms",
)
WATERMARK_GROUP = VALUES_AND_TIME.text(
    "flink.watermark.group",
    "Name of the job: subtasks of one group share a global watermark, others never do. "
    "Not set: over TCP the names of the streams; in one process, subtasks with the same streams, parallelism and properties.",
)
