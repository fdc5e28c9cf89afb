"""Declares the properties of a whole job: its name, streams and sink, and its alarms."""

from ..max_outage import JOB
from ..property_types import PropertyGroup

JOB_NAME = JOB.text(
    "flink.job.name",
    "Name of the job: separates jobs that share a database. Elsewhere each job has a `flink.state.uri` of its own.",
)
JOB_WORKERS = JOB.choice(
    "flink.job.workers",
    "If set, ALONE: one process reads all shards; a later start replaces it. GROUP: processes with the same "
    "flink.state.uri (in a database: and flink.job.name) share the shards; any may join, leave or fail.",
    "ALONE",
    ("ALONE", "GROUP"),
)
STREAMS = JOB.text("flink.streams", "Names or ARNs of the streams that `recordpublisher run` reads, comma-separated.")
STREAMS_FILE = JOB.text(
    "flink.streams.file",
    "In place of flink.streams: a file with a name or an ARN on each line, looked at again and again.",
)
STREAMS_FUNCTION = JOB.text(
    "flink.streams.function",
    "In place of flink.streams: module:function, which returns names or ARNs; called again and again.",
)
STREAMS_INTERVAL = JOB.integer(
    "flink.streams.interval",
    "How often such a file or function is looked at.",
    60_000,
    minimum=1,
    unit="ms",
)
SINK = JOB.text("flink.sink", "Where `recordpublisher run` writes: the name of a sink, bundled or a plugin's.")
DRAIN_TIMEOUT = JOB.integer(
    "flink.job.drain.timeout",
    "For how long a job that is stopped, or whose `max_time` is over, waits for one call of a `map` handler; what it has not handled "
    "then is read again by the next start. `recordpublisher run` stops subtasks that drain for 20 s longer after another one has failed.",
    30_000,
    minimum=1_000,
    unit="ms",
)

ALARMS = PropertyGroup("Alarms")
ALARM_INTERVAL = ALARMS.integer(
    "flink.alarm.interval",
    "Alarm when a shard with new records emits none, or the global watermark stands still, for this long; -1 off.",
    300_000,
    minimum=1,
    also=(-1,),
    unit="ms",
)
