"""The properties of a job: its streams and state, values and times, bad records, metrics and alarms."""

from enum import Enum
from typing import Literal

from .declaration import PropertyGroup
from .retry_properties import JOB

JOB_NAME = JOB.text(
    "flink.job.name",
    "Name of the job: separates jobs that share a database. Elsewhere each job has a `flink.state.uri` of its own.",
)
JOB_WORKERS = JOB.choice(
    "flink.job.workers",
    "ALONE: one process reads all shards; a later start replaces it. GROUP: processes with the same flink.state.uri (in a "
    "database: and flink.job.name) share the shards; any may join, leave or fail.",
    "ALONE",
    ("ALONE", "GROUP"),
)
STREAMS = JOB.text("flink.streams", "Names or ARNs of the streams that `recordpublisher run` reads, comma-separated.")
STREAMS_FILE = JOB.text(
    "flink.streams.file",
    "A file with a name or an ARN of a stream on each line, instead of flink.streams; read again at each "
    "flink.shard.discovery.intervalmillis.",
)
STREAMS_FUNCTION = JOB.text(
    "flink.streams.function",
    "A function (module:function) that returns names or ARNs, instead of flink.streams; called again at each "
    "flink.shard.discovery.intervalmillis.",
)
SINK = JOB.text("flink.sink", "Where `recordpublisher run` writes: the name of a sink, bundled or a plugin's.")
DRAIN_TIMEOUT = JOB.integer(
    "flink.job.drain.timeout",
    "For how long a job that is stopped waits for the calls of a `map` handler, counted from the stop (in a group up to 5 s "
    "later), or for puts of the Kinesis sink that all fail; what it has not handled then is read again by the next start. If no "
    "positions are stored, or if `max_time` has ended the run, each call that returns starts this time again. A job that ends, "
    "even by an error, waits as long for a publisher, for `close` of a plugin and, if it runs alone, for the store of its last "
    "checkpoint. A queue job that is stopped waits as long for the target of its last flush. A producer that is closed in an "
    "outage gives up its records when none was acknowledged for as long. `recordpublisher run` stops workers that drain for 20 s "
    "longer after another one has failed.",
    # Kubernetes and gunicorn kill a process 30 s after SIGTERM, unless another time is set there.
    20_000,
    minimum=1_000,
    unit="ms",
    bare_from=1_000,
)

ALARMS = PropertyGroup("Alarms")
ALARM_INTERVAL = ALARMS.integer(
    "flink.alarm.interval",
    "Alarm if a shard with new records emits none, or the global watermark does not rise, for this long; -1: no alarms.",
    300_000,
    minimum=1,
    also=(-1,),
    unit="ms",
    bare_from=1_000,
)

DISCOVERY_AND_STATE = PropertyGroup("Discovery and state")
STATE_ENDPOINT = DISCOVERY_AND_STATE.text(
    "flink.state.endpoint", "An endpoint of S3 or DynamoDB to call instead of the region's own."
)
DISCOVERY_INTERVAL = DISCOVERY_AND_STATE.integer(
    "flink.shard.discovery.intervalmillis",
    "Interval of the discovery of shards, and of streams that a file or a function lists; -1: never.",
    10_000,
    minimum=1,
    also=(-1,),
    unit="ms",
)
LEASE_DURATION = DISCOVERY_AND_STATE.integer(
    "flink.lease.duration",
    "If a process of a group sends no heartbeat for this long, other processes acquire its shards.",
    20_000,
    minimum=2_000,
    unit="ms",
    bare_from=1_000,
)
ACCEPTS_LOSS = {"FAIL": False, "CONTINUE": True}
"""For each value of `flink.state.dataloss`: whether a job continues without records that passed retention unread."""
ON_DATA_LOSS = DISCOVERY_AND_STATE.choice(
    "flink.state.dataloss",
    "When records passed retention unread: FAIL and name the gap, or CONTINUE and count it.",
    "FAIL",
    tuple(ACCEPTS_LOSS),
)
STATE_URI = DISCOVERY_AND_STATE.text(
    "flink.state.uri", "Where checkpoints are kept: a path or a registered store's URI."
)
CHECKPOINT_INTERVAL = DISCOVERY_AND_STATE.integer(
    "flink.state.checkpoint.interval",
    "Interval of checkpoints, if a state store is set; -1: only at a stop.",
    10_000,
    minimum=1,
    also=(-1,),
    unit="ms",
    bare_from=100,
)

MEMORY = PropertyGroup("Memory")
WORKER_BYTES = MEMORY.integer(
    "flink.worker.queue.bytes",
    "Memory budget of everything queued in a worker.",
    128 * 2**20,
    minimum=2**16,
    unit="bytes",
)
SHARD_BYTES = MEMORY.integer(
    "flink.shard.queue.bytes", "Memory budget of one shard's queue.", 16 * 2**20, minimum=2**10, unit="bytes"
)
SHARD_RECORDS = MEMORY.integer(
    "flink.shard.queue.records", "Records in one shard's queue.", 50_000, minimum=1, unit="records"
)

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
    "flink.watermark.timestamp.field",
    "Field with the event time, epoch ms or ISO-8601: at the top of JSON payloads, else of decoded values. Not set: arrival time.",
)
OUT_OF_ORDERNESS = VALUES_AND_TIME.integer(
    "flink.watermark.outoforderness.millis",
    "How far the watermark is behind the event times: the out-of-orderness within a shard.",
    0,
    unit="ms",
)
FUTURE_LIMIT = VALUES_AND_TIME.integer(
    "flink.watermark.future.limit",
    "For watermarks, an event time that is further than this after its record's arrival counts as the arrival time; -1: off.",
    3_600_000,
    also=(-1,),
    unit="ms",
    bare_from=1_000,
)
WATERMARK_STRATEGY = VALUES_AND_TIME.text(
    "flink.watermark.strategy",
    "How watermarks follow from event times: BOUNDED, MONOTONOUS (no disorder), ARRIVAL (from arrival times) or a plugin's name.",
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
    "Watermarks do not wait for a shard whose next record is further than this behind the most advanced shard. Not set: off.",
    minimum=1,
    unit="ms",
    bare_from=1_000,
)
IDLE_INTERVAL = VALUES_AND_TIME.integer(
    "flink.shard.idle.interval",
    "Time without records after which a shard is idle; -1: watermarks wait for every shard.",
    -1,
    minimum=1,
    also=(-1,),
    unit="ms",
    bare_from=1_000,
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
TRACKER_TIMEOUT = VALUES_AND_TIME.integer(
    "flink.watermark.tracker.timeout",
    "A worker of a group whose heartbeats have stopped no longer holds the global watermark back after this time.",
    30_000,
    minimum=1,
    unit="ms",
    bare_from=1_000,
)

FORMATS = PropertyGroup("Formats")
SCHEMA = FORMATS.text(
    "flink.deserializer.schema",
    "The fields of objects in records, as columns (`id BIGINT, amount DECIMAL(12, 2), address STRUCT<country: STRING>`), "
    "or the path of a file: `.avsc`, or `.json` (JSON Schema), or its content. They are checked, and are columns as those of a type. "
    "INFER: the sinks delta, iceberg, sql, parquet and jsonl add columns as the data shows them.",
)
AVRO_SCHEMA = FORMATS.text(
    "flink.deserializer.avro.schema", "The Avro schema of the records, as JSON, or the path of its file (`.avsc`)."
)
GLUE_ENDPOINT = FORMATS.text(
    "flink.deserializer.glue.endpoint",
    "An endpoint of the Glue Schema Registry to call instead of the region's own, for example in a VPC.",
)
PROTOBUF_MESSAGE = FORMATS.text(
    "flink.deserializer.protobuf.message",
    "The full name of the Protobuf message in each record, for example `shop.Order`.",
)
PROTOBUF_DESCRIPTOR = FORMATS.text(
    "flink.deserializer.protobuf.descriptor",
    "Where the message is described: a file that `protoc --include_imports --descriptor_set_out=FILE` wrote, or the Python module "
    "that protoc generated, whose name ends in _pb2.",
)


class OnBadRecord(Enum):
    """The policy for a bad record.

    | what is wrong | property | found in |
    |---|---|---|
    | payload not decompressed, or too large; no value; no valid event time | `flink.deserializer.error` | `consumer/shard_consumer.py` |
    | the sink can never write it | `flink.deserializer.error` | `fetcher/pipeline/dead_letters.py` |
    | the function of MapSink failed after the last retry | `flink.sink.map.on.failure` | `plugins/sinks/map/handling.py` |
    | Spark: a row can never be written | `flink.spark.write.onfailure` | `plugins/spark/write_options.py` |

    FAIL: the job ends with an error that names the record. SKIP: the record is logged and counted. DEAD_LETTER: the record is written to
    the dead-letter sink.
    """

    FAIL = "FAIL"
    SKIP = "SKIP"
    DEAD_LETTER = "DEAD_LETTER"


OnFailureName = Literal["FAIL", "SKIP", "DEAD_LETTER"]
"""The names of `OnBadRecord`, as arguments accept them."""
BAD_RECORD_CHOICES = tuple(OnBadRecord.__members__)

BAD_RECORDS = PropertyGroup("Bad records")
ON_BAD_RECORD = BAD_RECORDS.choice(
    "flink.deserializer.error",
    "What happens to a record that cannot be deserialized, or that the sink can never write: FAIL, SKIP and count, or DEAD_LETTER.",
    OnBadRecord.FAIL.name,
    BAD_RECORD_CHOICES,
)
MAP_ON_FAILURE = BAD_RECORDS.choice(
    "flink.sink.map.on.failure",
    "After the last retry: FAIL the job, SKIP the record, or DEAD_LETTER, with `flink.deserializer.error=DEAD_LETTER`.",
    OnBadRecord.FAIL.name,
    BAD_RECORD_CHOICES,
)
DEAD_LETTER_SINK = BAD_RECORDS.text(
    "flink.deadletter.sink", "The sink for records that cannot be used, with flink.deserializer.error=DEAD_LETTER."
)
DEAD_LETTER = BAD_RECORDS.prefix(
    "flink.deadletter.", "A setting of the dead-letter sink: flink.deadletter.jsonl.path is its flink.sink.jsonl.path."
)

METRICS = PropertyGroup("Metrics")
METRICS_EXPORTERS = METRICS.text(
    "flink.metrics.exporters",
    "Where `recordpublisher run` and `rp.export_metrics` send metrics, comma-separated: prometheus (a page to scrape, with health), "
    "cloudwatch (log lines), opentelemetry (OTLP), or a plugin's names.",
)
PROMETHEUS_ADDRESS = METRICS.text(
    "flink.metrics.prometheus.address",
    "host:port of the pages /metrics, /healthz and /readyz. Of a range, host:first-last, each process takes the first free port. Port 0: "
    "any free port.",
    "127.0.0.1:9249-9268",
)
METRICS_INTERVAL = METRICS.integer(
    "flink.metrics.interval",
    "How often cloudwatch and opentelemetry send.",
    60_000,
    minimum=1000,
    unit="ms",
    bare_from=1_000,
)
CLOUDWATCH_FILE = METRICS.text(
    "flink.metrics.cloudwatch.file",
    "The file for lines in CloudWatch's embedded metric format; - is stdout.",
    "-",
)
CLOUDWATCH_NAMESPACE = METRICS.text(
    "flink.metrics.cloudwatch.namespace", "The namespace of the metrics in CloudWatch.", "recordpublisher"
)
CLOUDWATCH_SHARDS = METRICS.boolean(
    "flink.metrics.cloudwatch.shards",
    "Whether the metrics of each shard are written too; CloudWatch bills each.",
    False,
)

TRACING = PropertyGroup("Traces")
TRACING_FIELD = TRACING.text(
    "flink.tracing.context.field",
    "The field of JSON payloads with the trace context (W3C's traceparent, or an object with it), where KinesisSink "
    "puts it.",
)
TRACING_FUNCTION = TRACING.text(
    "flink.tracing.context.function",
    "A function of a Record, as module:function, that returns its trace context: headers by name, or None.",
)
TRACING_SPANS = TRACING.choice(
    "flink.tracing.spans",
    "The spans of a write or of a handler's list: one with links to the records' contexts, or also one for each record.",
    "BATCH",
    ("BATCH", "RECORD"),
)
