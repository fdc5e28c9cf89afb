"""The properties of a subtask: discovery, state, values, time, formats, memory (C1)."""

from __future__ import annotations

from .property_types import boolean, choice, integer, optional_integer, text

# discovery and state
DISCOVERY_INTERVAL = integer(
    "flink.shard.discovery.intervalmillis",
    "Interval of shard discovery (S3); -1 never.",
    10_000,
    1,
    also=(-1,),
    unit="ms",
    group="Discovery and state",
)
SHARD_ASSIGNER = text(
    "flink.shard.assigner",
    "Which subtask reads which shard (S9): UNIFORM or a plugin's name.",
    "UNIFORM",
    group="Discovery and state",
)
SHARD_ASSIGNMENT = choice(
    "flink.shard.assignment",
    "STATIC: a fixed number of subtasks shares the shards (S9). ELASTIC: processes with the same flink.state.uri (in a database: and the "
    "same flink.job.name) share them; any of them may join, leave or fail while the others run.",
    "STATIC",
    ("STATIC", "ELASTIC"),
    group="Discovery and state",
)
LEASE_DURATION = integer(
    "flink.lease.duration",
    "ELASTIC: the other processes take the shards of one whose heartbeat in the store stood still for this long.",
    20_000,
    2_000,
    unit="ms",
    group="Discovery and state",
)
TAKEOVER = boolean(
    "flink.state.takeover",
    "Go on from the positions that the other kind of flink.shard.assignment has stored at flink.state.uri: set it for one start, or use "
    "`run --takeover`. Subtasks are fenced off; workers must have ended. The sinks sql, jsonl and parquet keep positions and refuse it.",
    False,
    group="Discovery and state",
)
ON_DATA_LOSS = choice(
    "flink.state.dataloss",
    "When records passed retention unread, at a start or while running (S5): FAIL and name the gap, or CONTINUE and count it.",
    "FAIL",
    ("FAIL", "CONTINUE"),
    group="Discovery and state",
)
STATE_URI = text(
    "flink.state.uri", "Where checkpoints are kept: a path or a registered store's URI.", group="Discovery and state"
)
CHECKPOINT_INTERVAL = integer(
    "flink.state.checkpoint.interval",
    "Interval of checkpoints, if a state store is set; -1 only on stop.",
    10_000,
    1,
    also=(-1,),
    unit="ms",
    group="Discovery and state",
)

# values and time
DESERIALIZER = text(
    "flink.deserializer",
    "How a record becomes a value: bytes, text, json, avro, protobuf, glue, or a plugin's name.",
    "bytes",
    group="Values and time",
)
COMPRESSION = choice(
    "flink.deserializer.compression",
    "How payloads are compressed; the deserialiser gets them decompressed. ZSTD and SNAPPY (block format) need the extra `compression`.",
    "NONE",
    ("NONE", "GZIP", "ZSTD", "SNAPPY"),
    group="Values and time",
)
MAX_DECOMPRESSED_BYTES = integer(
    "flink.deserializer.decompressed.max.bytes",
    "The largest decompressed payload; a larger one is a record that cannot be deserialised.",
    16 * 2**20,
    1,
    2**30,
    unit="bytes",
    group="Values and time",
)
ON_POISON = choice(
    "flink.deserializer.error",
    "A record that cannot be deserialised, or that the sink can never write (S7): FAIL, SKIP and count, or DEAD_LETTER.",
    "FAIL",
    ("FAIL", "SKIP", "DEAD_LETTER"),
    group="Values and time",
)
TIMESTAMP_FIELD = text(
    "flink.watermark.timestamp.field",
    "JSON field with the event time, epoch ms or ISO-8601. Not set: arrival time.",
    group="Values and time",
)
OUT_OF_ORDERNESS = integer(
    "flink.watermark.outoforderness.millis",
    "Bound of the out-of-orderness within a shard: how far the watermark is behind the event times.",
    0,
    unit="ms",
    group="Values and time",
)
FUTURE_LIMIT = integer(
    "flink.watermark.future.limit",
    "An event time further ahead of its arrival counts as the arrival time for watermarks (W12); -1 off.",
    3_600_000,
    also=(-1,),
    unit="ms",
    group="Values and time",
)
WATERMARK_STRATEGY = text(
    "flink.watermark.strategy",
    "From event times to watermarks: BOUNDED, MONOTONOUS (no disorder), ARRIVAL (from arrival times) or a plugin's name.",
    "BOUNDED",
    group="Values and time",
)
LOOKAHEAD = optional_integer(
    "flink.watermark.lookahead.millis",
    "Event-time alignment: how far a record's watermark may be ahead of the global one (W8). Not set: off; 0 is allowed.",
    unit="ms",
    connector="0, raised to three sync intervals",
    group="Values and time",
)
MAX_LAG = optional_integer(
    "flink.watermark.alignment.max.lag",
    "A shard whose next record is further than this behind the job's most advanced shard is not waited for (W12). Not set: off.",
    1,
    unit="ms",
    group="Values and time",
)
IDLE_INTERVAL = integer(
    "flink.shard.idle.interval",
    "Time without records after which a shard is idle (W3); -1 waits for every shard (W2).",
    -1,
    1,
    also=(-1,),
    unit="ms",
    group="Values and time",
)
SYNC_INTERVAL = integer(
    "flink.watermark.sync.interval",
    "Interval of refreshes of the global watermark (W7).",
    1_000,
    1,
    unit="ms",
    group="Values and time",
    connector="30000",
)
EMIT_INTERVAL = integer(
    "flink.watermark.emit.interval",
    "Shortest interval between two watermarks that a sink gets (W1).",
    200,
    0,
    unit="ms",
    group="Values and time",
)
TRACKER = text(
    "flink.watermark.tracker",
    "Tracker of the global watermark: IN_PROCESS, TCP, or a plugin's name (W10).",
    "IN_PROCESS",
    group="Values and time",
)
TRACKER_ADDRESS = text(
    "flink.watermark.tracker.address", "host:port of the tracker; TCP needs it.", group="Values and time"
)
TRACKER_TOKEN = text(
    "flink.watermark.tracker.token",
    "Token with which the tracker was started; TCP needs it.",
    group="Values and time",
    secret=True,
)
TRACKER_TLS_CA = text(
    "flink.watermark.tracker.tls.ca",
    "File of CA certificates (PEM) that the tracker's certificate is checked with. Not set: no TLS.",
    group="Values and time",
)
TRACKER_TLS_CERTIFICATE = text(
    "flink.watermark.tracker.tls.certificate",
    "File of this job's certificate (PEM), for a tracker that asks clients for one.",
    group="Values and time",
)
TRACKER_TLS_KEY = text(
    "flink.watermark.tracker.tls.key",
    "File of the private key of flink.watermark.tracker.tls.certificate (PEM, without a password).",
    group="Values and time",
)
TRACKER_TIMEOUT = integer(
    "flink.watermark.tracker.timeout",
    "A subtask that has not reported for this long is excluded (W6); at least three sync intervals.",
    30_000,
    1,
    unit="ms",
    group="Values and time",
)
STARTUP_TIMEOUT = integer(
    "flink.watermark.startup.timeout",
    "How long the first value waits for every expected subtask, in time in which this process runs (W6, W10).",
    60_000,
    1,
    unit="ms",
    group="Values and time",
)
WATERMARK_GROUP = text(
    "flink.watermark.group",
    "Name of the job: subtasks of one group share a global watermark, others never do (W6). "
    "Not set: over TCP the names of the streams; in one process, subtasks with the same streams, parallelism and properties.",
    group="Values and time",
)

# formats
AVRO_SCHEMA = text(
    "flink.deserializer.avro.schema",
    "The Avro schema of the records, as JSON. Either this or `flink.deserializer.avro.schema.file`.",
    group="Formats",
)
AVRO_SCHEMA_FILE = text(
    "flink.deserializer.avro.schema.file", "A file with the Avro schema of the records (`.avsc`).", group="Formats"
)
GLUE_ENDPOINT = text(
    "flink.deserializer.glue.endpoint",
    "Another endpoint of the Glue Schema Registry, for example of a VPC.",
    group="Formats",
)
PROTOBUF_MESSAGE = text(
    "flink.deserializer.protobuf.message",
    "The full name of the Protobuf message in each record, for example `shop.Order`.",
    group="Formats",
)
PROTOBUF_DESCRIPTOR_FILE = text(
    "flink.deserializer.protobuf.descriptor.file",
    "A file of descriptors with the message: `protoc --include_imports --descriptor_set_out=FILE`. "
    "Either this or `flink.deserializer.protobuf.module`.",
    group="Formats",
)
PROTOBUF_MODULE = text(
    "flink.deserializer.protobuf.module",
    "The Python module that protoc generated, for example `orders_pb2`.",
    group="Formats",
)

# memory
SUBTASK_BYTES = integer(
    "flink.subtask.queue.bytes",
    "Memory budget of everything queued in a subtask (P6).",
    128 * 2**20,
    2**16,
    unit="bytes",
    group="Memory",
)
SHARD_BYTES = integer(
    "flink.shard.queue.bytes",
    "Memory budget of one shard's queue (P6).",
    16 * 2**20,
    2**10,
    unit="bytes",
    group="Memory",
)
SHARD_RECORDS = integer(
    "flink.shard.queue.records", "Records in one shard's queue.", 50_000, 1, unit="records", group="Memory"
)
