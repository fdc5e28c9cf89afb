"""The properties of the map sink: the arguments of `MapSink`, for a job that is started by its properties."""

from __future__ import annotations

from .property_types import choice, integer, optional_integer, text

_GROUP = "Sinks"

MAP_FUNCTION = text(
    "flink.sink.map.function",
    "The function of the map sink, as module:function. It is called for each record.",
    group=_GROUP,
)
MAP_CONCURRENCY = integer(
    "flink.sink.map.concurrency", "Calls of the function at a time.", 64, 1, unit="calls", group=_GROUP
)
MAP_ORDERING = choice(
    "flink.sink.map.ordering",
    "Records that are handled one after the other: of one partition key, of one shard, or none.",
    "PER_KEY",
    ("PER_KEY", "PER_SHARD", "NONE"),
    group=_GROUP,
)
MAP_BATCH_SIZE = integer(
    "flink.sink.map.batch.size", "Above 1 the function gets a list of records.", 1, 1, unit="records", group=_GROUP
)
MAP_BATCH_WAIT = integer(
    "flink.sink.map.batch.wait", "How long a list waits for more records.", 0, 0, unit="ms", group=_GROUP
)
MAP_RETRIES = integer(
    "flink.sink.map.retries", "How often a record that failed is handled again.", 3, 0, unit="retries", group=_GROUP
)
MAP_TIMEOUT = optional_integer(
    "flink.sink.map.timeout",
    "When an async function is cancelled, which counts as a failure; not set: never.",
    1,
    unit="ms",
    group=_GROUP,
)
MAP_MAX_AGE = optional_integer(
    "flink.sink.map.max.age",
    "Records that arrived longer ago are not handled; not set: all are.",
    1,
    unit="ms",
    group=_GROUP,
)
MAP_ON_FAILURE = choice(
    "flink.sink.map.on.failure",
    "After the last retry: FAIL the job, SKIP the record, or do with it as `flink.deserializer.error` says.",
    "FAIL",
    ("FAIL", "SKIP", "DEAD_LETTER"),
    group=_GROUP,
)
MAP_MAX_BYTES = integer(
    "flink.sink.map.max.bytes",
    "Memory of records that are not handled yet, at which reading waits.",
    64 * 2**20,
    1,
    unit="bytes",
    group=_GROUP,
)
