"""Declares the properties of the included sinks, except the Kinesis sink and the sinks that write files and tables."""

from ..property_types import PropertyGroup

SINKS = PropertyGroup("Sinks")
SQL_URI = SINKS.text(
    "flink.sink.sql.uri", "The database of the sql sink: postgresql://user@host/database or sqlite:////path/file.db."
)
SQL_TABLE = SINKS.text(
    "flink.sink.sql.table",
    "The table of the sql sink, with its schema if needed; created when it is missing.",
    "records",
)
SQL_COLUMNS = SINKS.choice(
    "flink.sink.sql.columns",
    "A missing table gets the columns of a RECORD, or those of its fields where the payload has a type; with AUTO, "
    "those of the fields of the first batch, and a later field is an error; EVOLVE adds its column.",
    "RECORD",
    ("RECORD", "AUTO", "EVOLVE"),
)
SQL_KEY = SINKS.text(
    "flink.sink.sql.key",
    "The fields, separated by commas, of which the sql sink's table keeps the newest row, by sequence number.",
)
SQL_DELETE = SINKS.text(
    "flink.sink.sql.delete",
    "What deletes the row of a key: a boolean field that is true (deleted), or a field and its value (op=D).",
)
SQL_BUFFER = SINKS.integer(
    "flink.sink.sql.buffer.bytes",
    "Memory of rows at which the sql sink requests a checkpoint; at twice of it the job waits.",
    16 * 2**20,
    minimum=1,
    unit="bytes",
)
CALLBACK = SINKS.text("flink.sink.callback.function", "The function of the callback sink, as module:function.")
MAP_FUNCTION = SINKS.text("flink.sink.map.function", "The function of the map sink, as module:function.")
MAP_CONCURRENCY = SINKS.integer(
    "flink.sink.map.concurrency", "Calls of the function at a time.", 64, minimum=1, unit="calls"
)
MAP_ORDERING = SINKS.choice(
    "flink.sink.map.ordering",
    "Records that are handled one after the other: of one partition key, of one shard, or none.",
    "PER_KEY",
    ("PER_KEY", "PER_SHARD", "NONE"),
)
MAP_BATCH_SIZE = SINKS.integer(
    "flink.sink.map.batch.size", "Above 1 the function gets a list of records.", 1, minimum=1, unit="records"
)
MAP_BATCH_WAIT = SINKS.integer(
    "flink.sink.map.batch.wait", "How long a list waits for more records.", 0, minimum=0, unit="ms"
)
MAP_RETRIES = SINKS.integer(
    "flink.sink.map.retries", "How often a record that failed is handled again.", 3, minimum=0, unit="retries"
)
MAP_RETRY_FOR = SINKS.integer(
    "flink.sink.map.retry.for",
    "How long a record that failed is handled again, and at least `flink.sink.map.retries` times: as long as what the function calls may "
    "be away.",
    0,
    unit="ms",
)
MAP_TIMEOUT = SINKS.optional_integer(
    "flink.sink.map.timeout",
    "When an async function is cancelled, which counts as a failure; not set: never.",
    minimum=1,
    unit="ms",
)
MAP_MAX_AGE = SINKS.optional_integer(
    "flink.sink.map.max.age", "Records that arrived longer ago are not handled; not set: all are.", minimum=1, unit="ms"
)
MAP_MAX_BYTES = SINKS.integer(
    "flink.sink.map.max.bytes",
    "Memory of records that are not handled yet, at which reading waits.",
    64 * 2**20,
    minimum=1,
    unit="bytes",
)
