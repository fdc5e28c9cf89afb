"""The properties of the built-in sinks."""

from ..service_limits import PUT_RECORDS_BYTES, PUT_RECORDS_RECORDS
from .declaration import PropertyGroup

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
SINK_BUFFER = SINKS.optional_integer(
    "flink.sink.buffer.bytes",
    "Memory of records at which the sinks sql, jsonl and parquet request a checkpoint, and delta and iceberg write their files; at twice "
    "of it the job waits. Not set: 16 MiB for sql, 64 MiB for the others.",
    minimum=1,
    unit="bytes",
)
FILES_BUFFER_BYTES = 64 * 2**20
"""The default of `flink.sink.buffer.bytes` for sinks that write files."""
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
    "flink.sink.map.batch.size",
    "The most records of one call. Above 1 the function gets a list of records.",
    1,
    minimum=1,
    unit="records",
)
MAP_BATCH_WAIT = SINKS.integer(
    "flink.sink.map.batch.wait", "How long a list waits for more records.", 0, minimum=0, unit="ms"
)
MAP_RETRIES = SINKS.integer(
    "flink.sink.map.retries",
    "How often a record that failed is handled again, unless the function raised InvalidRecordError.",
    3,
    minimum=0,
    unit="retries",
)
MAP_RETRY_FOR = SINKS.integer(
    "flink.sink.map.retry.for",
    "How long a record that failed is handled again, and at least `flink.sink.map.retries` times. Set the longest outage of "
    "the services that the function calls.",
    0,
    unit="ms",
    bare_from=1_000,
)
MAP_TIMEOUT = SINKS.optional_integer(
    "flink.sink.map.timeout",
    "Time after which a call of an async function is cancelled, which counts as a failure; not set: never.",
    minimum=1,
    unit="ms",
    bare_from=1_000,
)
MAP_MAX_AGE = SINKS.optional_integer(
    "flink.sink.map.max.age",
    "Records that arrived longer ago are not handled; not set: all are.",
    minimum=1,
    unit="ms",
    bare_from=1_000,
)
MAP_MAX_BYTES = SINKS.integer(
    "flink.sink.map.max.bytes",
    "Memory of records that are not handled yet, at which reading waits.",
    64 * 2**20,
    minimum=1,
    unit="bytes",
)

FILES_AND_TABLES = PropertyGroup("Files and tables")
JSONL_PATH = FILES_AND_TABLES.text(
    "flink.sink.jsonl.path",
    "Where the jsonl sink writes: a folder, s3://bucket/prefix, gs://bucket/prefix or abfss://container@account.dfs.core.windows.net/prefix.",
)
PARQUET_PATH = FILES_AND_TABLES.text(
    "flink.sink.parquet.path", "Where the parquet sink writes, as `flink.sink.jsonl.path`."
)
ARCHIVE = FILES_AND_TABLES.boolean(
    "flink.sink.archive",
    "Whether the sinks jsonl, parquet, delta and iceberg write an archive: files of one shard with the records as they came, names that "
    "say in which range of the shard a file is complete, and a document of each shard with its parents, its hash range and its end. They "
    "refuse settings that change payloads. The publisher ARCHIVE reads it back.",
    False,
)
PARTITIONS = FILES_AND_TABLES.text(
    "flink.sink.partitions",
    "Files of parquet, delta and iceberg by time in UTC, by field or by a field in objects: "
    "dt={eventTime:%Y-%m-%d}/hour={eventTime:%H}/item={item}/country={address.country}. "
    "These are folders, or the partition columns of a table.",
)
PARQUET_COMPRESSION = FILES_AND_TABLES.choice(
    "flink.sink.parquet.compression",
    "Compression of Parquet files, including those of delta and iceberg. ZSTD takes half the space and twice the CPU of SNAPPY.",
    "SNAPPY",
    ("NONE", "SNAPPY", "LZ4", "GZIP", "BROTLI", "ZSTD"),
)
PARQUET_ROW_GROUP = FILES_AND_TABLES.integer(
    "flink.sink.parquet.row.group.bytes",
    "Memory of the rows of a row group; less when those of all open files have flink.sink.buffer.bytes.",
    32 * 2**20,
    minimum=1,
    unit="bytes",
)
PARQUET_SORT = FILES_AND_TABLES.text(
    "flink.sink.parquet.sort", "Columns by which each row group is sorted, with commas between."
)
PARQUET_COLUMNS = FILES_AND_TABLES.choice(
    "flink.sink.parquet.columns",
    "FIELDS: those of the payload's type, then the metadata; without a type, and with RECORD, the metadata and `data`, and `value` as "
    "JSON text. Also for the sinks delta and iceberg.",
    "FIELDS",
    ("FIELDS", "RECORD"),
)
DELTA_URI = FILES_AND_TABLES.text(
    "flink.sink.delta.uri",
    "The table of the delta sink: a folder, s3://bucket/prefix, gs://bucket/prefix or "
    "abfss://container@account.dfs.core.windows.net/prefix. It is created if it is not there.",
)
DELTA_STORAGE = FILES_AND_TABLES.prefix(
    "flink.sink.delta.storage.",
    "An option of deltalake's client of the log, as storage_options: flink.sink.delta.storage.AWS_S3_LOCKING_PROVIDER=dynamodb.",
)
ICEBERG_TABLE = FILES_AND_TABLES.text(
    "flink.sink.iceberg.table",
    "The table of the iceberg sink, as namespace.table. It is created if it is not there. The job's positions are at flink.state.uri.",
)
ICEBERG_CATALOG = FILES_AND_TABLES.prefix(
    "flink.sink.iceberg.catalog.",
    "A property of pyiceberg's catalogue: name, type=rest, glue, sql or in-memory, uri, warehouse, s3.endpoint. "
    "Without any: pyiceberg's own configuration.",
    secret=True,
)
TABLE_SINKS = ("delta", "iceberg")
"""The names of the sinks that write files and add them to a table."""
TABLE_COLUMNS = FILES_AND_TABLES.choice(
    "flink.sink.table.columns",
    "When the table of the sinks delta and iceberg lacks a column of the records: FIXED refuses to start, EVOLVE adds it.",
    "FIXED",
    ("FIXED", "EVOLVE"),
)
TABLE_BYTES = FILES_AND_TABLES.integer(
    "flink.sink.table.bytes",
    "Rows, in bytes before compression, at which the sinks delta and iceberg request a commit.",
    512 * 2**20,
    minimum=1,
    unit="bytes",
)

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
    "Bytes of unacknowledged records, as held in memory, at which the writer waits; not set: 10 MB for each shard, 128 MiB at most.",
    minimum=1,
    unit="bytes",
)
SINK_ORDERING = KINESIS_SINK.choice(
    "flink.sink.kinesis.ordering",
    "NONE, the order of PutRecords, or PER_KEY: one unacknowledged Kinesis record for each partition key.",
    "NONE",
    ("NONE", "PER_KEY"),
)
SINK_FAIL_ON_ERROR = KINESIS_SINK.boolean(
    "flink.sink.kinesis.failonerror",
    "Whether a record that cannot be put is an error, which ends a job; else it goes to the callback or the job's dead letters, counted "
    "and logged.",
    default=True,
    connector="false",
)
AGGREGATION_ENABLED = KINESIS_SINK.boolean(
    "AggregationEnabled", "Whether records are put in KPL aggregates.", default=False, connector="true"
)
AGGREGATION_MAX_COUNT = KINESIS_SINK.integer(
    "AggregationMaxCount",
    "Most user records in one aggregate.",
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
