"""Properties of Parquet files."""

from ..property_types import PropertyGroup

FILES_AND_TABLES = PropertyGroup("Parquet files")
PARQUET_COMPRESSION = FILES_AND_TABLES.choice(
    "flink.sink.parquet.compression",
    "The compression of Parquet files. ZSTD takes half the space and twice the CPU time of SNAPPY.",
    "SNAPPY",
    ("NONE", "SNAPPY", "LZ4", "GZIP", "BROTLI", "ZSTD"),
)
PARQUET_ROW_GROUP = FILES_AND_TABLES.integer(
    "flink.sink.parquet.row.group.bytes",
    "Memory of the rows of a row group.",
    32 * 2**20,
    minimum=1,
    unit="bytes",
)
PARQUET_STATISTICS = FILES_AND_TABLES.boolean(
    "flink.sink.parquet.statistics", "Whether row groups have the least and greatest value of each column.", True
)
PARQUET_SORT = FILES_AND_TABLES.text(
    "flink.sink.parquet.sort", "Columns by which each row group is sorted, with commas between."
)
PARQUET_COLUMNS = FILES_AND_TABLES.choice(
    "flink.sink.parquet.columns",
    "FIELDS: those of the payload's type, then the metadata; without a type, and with RECORD, the metadata and `data`, and `value` as "
    "JSON text.",
    "FIELDS",
    ("FIELDS", "RECORD"),
)
