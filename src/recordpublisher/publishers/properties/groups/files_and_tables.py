"""Declares the properties of the sinks that write files, and of the sinks that write tables of lakes."""

from ..property_types import PropertyGroup

FILES_AND_TABLES = PropertyGroup("Files and tables")
JSONL_PATH = FILES_AND_TABLES.text(
    "flink.sink.jsonl.path",
    "Where the jsonl sink writes: a folder, s3://bucket/prefix, gs://bucket/prefix or abfss://container@account.dfs.core.windows.net/prefix.",
)
PARQUET_PATH = FILES_AND_TABLES.text(
    "flink.sink.parquet.path", "Where the parquet sink writes, as `flink.sink.jsonl.path`."
)
FILE_BUFFER = FILES_AND_TABLES.integer(
    "flink.sink.file.buffer.bytes",
    "Memory of records at which a file sink requests a checkpoint; at twice of it the job waits.",
    64 * 2**20,
    minimum=1,
    unit="bytes",
)
ARCHIVE = FILES_AND_TABLES.boolean(
    "flink.sink.archive",
    "Whether the sinks jsonl and parquet write an archive: their files have the records as they came, and names with the range of their "
    "shard in which they are complete, and each shard has a document with its parents, its hash range and its end. They refuse settings "
    "that change payloads.",
    False,
)
FILE_INTERVAL = FILES_AND_TABLES.optional_integer(
    "flink.sink.file.interval",
    "How often the sinks jsonl and parquet end their files, where flink.state.checkpoint.interval is not set. Not "
    "set: each minute in an object store, else at each checkpoint.",
    minimum=1,
    unit="ms",
)
PARTITIONS = FILES_AND_TABLES.text(
    "flink.sink.partitions",
    "Files of parquet, delta and iceberg by time in UTC, by field or by a field in objects: "
    "dt={eventTime:%Y-%m-%d}/hour={eventTime:%H}/item={item}/country={address.country}. "
    "These are folders, or the partition columns of a table.",
)
PARQUET_COMPRESSION = FILES_AND_TABLES.choice(
    "flink.sink.parquet.compression",
    "Of Parquet files, also of delta and iceberg. ZSTD takes half the space and twice the CPU of SNAPPY.",
    "SNAPPY",
    ("NONE", "SNAPPY", "LZ4", "GZIP", "BROTLI", "ZSTD"),
)
PARQUET_ROW_GROUP = FILES_AND_TABLES.integer(
    "flink.sink.parquet.row.group.bytes",
    "Memory of the rows of a row group; less when those of all open files have flink.sink.file.buffer.bytes.",
    32 * 2**20,
    minimum=1,
    unit="bytes",
)
PARQUET_STATISTICS = FILES_AND_TABLES.boolean(
    "flink.sink.parquet.statistics",
    "Whether row groups have the least and greatest value of columns that are not bytes.",
    True,
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
DELTA_COLUMNS = FILES_AND_TABLES.choice(
    "flink.sink.delta.columns",
    "When the table lacks a column of the records: FIXED refuses to start, EVOLVE adds it.",
    "FIXED",
    ("FIXED", "EVOLVE"),
)
DELTA_INTERVAL = FILES_AND_TABLES.integer(
    "flink.sink.delta.interval",
    "How often the delta sink commits, where flink.state.checkpoint.interval is not set.",
    60_000,
    minimum=1,
    unit="ms",
)
DELTA_BYTES = FILES_AND_TABLES.integer(
    "flink.sink.delta.bytes",
    "Memory of rows, before compression, at which the delta sink requests a commit.",
    512 * 2**20,
    minimum=1,
    unit="bytes",
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
ICEBERG_COLUMNS = FILES_AND_TABLES.choice(
    "flink.sink.iceberg.columns",
    "When the table lacks a column of the records: FIXED refuses to start, EVOLVE adds it.",
    "FIXED",
    ("FIXED", "EVOLVE"),
)
ICEBERG_INTERVAL = FILES_AND_TABLES.integer(
    "flink.sink.iceberg.interval",
    "How often the iceberg sink commits, where flink.state.checkpoint.interval is not set.",
    60_000,
    minimum=1,
    unit="ms",
)
ICEBERG_BYTES = FILES_AND_TABLES.integer(
    "flink.sink.iceberg.bytes",
    "Memory of rows, before compression, at which the iceberg sink requests a commit.",
    512 * 2**20,
    minimum=1,
    unit="bytes",
)
