"""The properties of a whole job: name, streams, sinks, dead letters, alarms (C1)."""

from __future__ import annotations

from .property_types import integer, prefix, text

JOB_NAME = text(
    "flink.job.name",
    "Name of the job: separates jobs that share a database for their state. Elsewhere each job has a `flink.state.uri` of its own.",
    group="Job",
)
STREAMS = text(
    "flink.streams", "Names or ARNs of the streams that `recordpublisher run` reads, comma-separated.", group="Job"
)
STREAMS_FILE = text(
    "flink.streams.file",
    "In place of flink.streams: a file with a name or an ARN on each line, looked at again while the job runs (S10).",
    group="Job",
)
STREAMS_FUNCTION = text(
    "flink.streams.function",
    "In place of flink.streams: a function, module:function, that returns names or ARNs; called again while the job runs (S10).",
    group="Job",
)
STREAMS_INTERVAL = integer(
    "flink.streams.interval",
    "How often a file or function of streams is looked at again (S10).",
    60_000,
    1,
    unit="ms",
    group="Job",
)
SINK = text("flink.sink", "Where `recordpublisher run` writes: the name of a sink, bundled or a plugin's.", group="Job")
DEAD_LETTER_SINK = text(
    "flink.deadletter.sink",
    "The sink for records that cannot be used, with flink.deserializer.error=DEAD_LETTER (S7).",
    group="Sinks",
)
DEAD_LETTER = prefix(
    "flink.deadletter.",
    "A setting of the dead-letter sink: flink.deadletter.jsonl.path is its flink.sink.jsonl.path.",
    group="Sinks",
)

# sql
SQL_URI = text(
    "flink.sink.sql.uri",
    "The database of the sql sink: postgresql://user@host/database or sqlite:////path/file.db.",
    group="Sinks",
)
SQL_TABLE = text(
    "flink.sink.sql.table",
    "The table of the sql sink, with its schema if needed; created with the columns of a record when it is missing.",
    "records",
    group="Sinks",
)
SQL_BUFFER = integer(
    "flink.sink.sql.buffer.bytes",
    "Memory of rows waiting for a checkpoint at which the sql sink requests one.",
    16 * 2**20,
    1,
    unit="bytes",
    group="Sinks",
)

# files
JSONL_PATH = text("flink.sink.jsonl.path", "The folder of the jsonl sink.", group="Sinks")
PARQUET_PATH = text("flink.sink.parquet.path", "The folder of the parquet sink.", group="Sinks")
FILE_BUFFER = integer(
    "flink.sink.file.buffer.bytes",
    "Memory of records waiting for a checkpoint at which a file sink requests one.",
    64 * 2**20,
    1,
    unit="bytes",
    group="Sinks",
)

CALLBACK = text("flink.sink.callback.function", "The function of the callback sink, as module:function.", group="Sinks")

# state
STATE_ENDPOINT = text(
    "flink.state.endpoint", "Another endpoint of S3 or DynamoDB than the region's.", group="Discovery and state"
)
DRAIN_TIMEOUT = integer(
    "flink.job.drain.timeout",
    "How long `recordpublisher run` lets subtasks drain after another one failed, before it stops them.",
    30,
    1,
    unit="s",
    group="Job",
)


ALARM_INTERVAL = integer(
    "flink.alarm.interval",
    "Alarm when a shard with new records emits none, or the global watermark does not advance, for this long (A2); -1 off.",
    300_000,
    1,
    also=(-1,),
    unit="ms",
    group="Alarms",
)
