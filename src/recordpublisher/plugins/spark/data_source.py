"""`format("kinesis")`: Spark's Python data source. The driver plans batches, tasks read them, and writers put rows into streams.

Spark imports this module in several processes for each query. One of them only asks for the name of the format, so this module imports
other modules only where they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from recordpublisher.plugins.columns.record_fields import SPARK_SCHEMA
from recordpublisher.publishers.errors import ConfigurationError

from .python_worker import errors_as_one_sentence

if TYPE_CHECKING:
    from .batch_read import KinesisBatchReader
    from .options.spark_options import SparkOptions
    from .writer import KinesisBatchWriter, KinesisStreamWriter


class KinesisSource(DataSource):  # type: ignore[misc] # pyspark is not typed here
    """The entry point of format "kinesis". It holds the options, and the time when they were loaded.

    Spark makes one instance for each `load()`, and passes copies of it to every action on that DataFrame. Therefore all actions of a batch
    read with `endingPosition` NOW end at the same time.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        from recordpublisher.publishers.clock import SystemClock

        super().__init__(_with_schema_texts(options))
        self._loaded_ms = SystemClock().now_ms() + 1  # + 1, so that a record of this millisecond is before the end
        self._is_checked = False

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kinesis"

    @errors_as_one_sentence()
    def schema(self) -> Any:
        """Return the columns of a read. Spark calls it at `load()`, unless the user gives a schema.

        Raises: ConfigurationError if an option is invalid.
        """
        from recordpublisher.publishers.properties.job_properties import SCHEMA

        from .options.other_connectors import refuse_new_table
        from .options.spark_options import ENDING_POSITION

        refuse_new_table(self.options)
        # Only a query needs a place for claims (what its tasks have read), and Spark does not say whether it loads a query.
        options = self._checked_options(keeps_claims=False)
        if options.properties.is_set(ENDING_POSITION):
            from .read_range import ReadRange

            ReadRange.parse(options.properties, options.streams, self._loaded_ms)
        options.warnings.tell()
        self._is_checked = True
        if not options.properties.is_set(SCHEMA):
            return SPARK_SCHEMA  # A constant, so that this process need not import Arrow.
        from .row_columns import spark_schema

        return spark_schema(options.properties)

    @errors_as_one_sentence()
    def reader(self, schema: Any) -> KinesisBatchReader:
        """Return the reader of a batch read. Raises: ConfigurationError if an option or the schema is invalid."""
        from .batch_read import KinesisBatchReader
        from .read_range import ReadRange

        options = self._checked_options(keeps_claims=False)
        positions = ReadRange.parse(options.properties, options.streams, self._loaded_ms)
        return KinesisBatchReader(options, positions, schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query. The reader parses the options and the schema at its first use."""
        from .stream_reader import QueryReader

        return QueryReader(self, schema)

    def query_options(self) -> SparkOptions:
        """Return the options of a streaming query.

        Raises: ConfigurationError if an option is invalid, or is for batch reads only.
        """
        from .options.spark_options import END_OPTION, ENDING_POSITION

        options = self._checked_options(keeps_claims=True)
        end = options.properties.value(ENDING_POSITION)
        if end is not None:
            raise ConfigurationError(END_OPTION, reason="a query has no end; read a part of a stream with spark.read")
        return options

    @errors_as_one_sentence()
    def streamWriter(self, schema: Any, overwrite: bool) -> KinesisStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer of a streaming query. Spark calls it when it plans the first batch.

        Raises: ConfigurationError if an option or a column is invalid; StreamNotFoundError if the stream does not exist.
        """
        from .options.other_connectors import silence_in_commit_process
        from .write_options import WriteOptions
        from .writer import KinesisStreamWriter

        silence_in_commit_process()
        writer = KinesisStreamWriter(WriteOptions.parse(self.options), schema)
        writer.check()
        return writer

    @errors_as_one_sentence()
    def writer(self, schema: Any, overwrite: bool) -> KinesisBatchWriter:
        """Return the writer of a batch job. Raises: the errors of `streamWriter`; ConfigurationError if the mode is "overwrite"."""
        from .write_options import WriteOptions
        from .writer import KinesisBatchWriter

        writer = KinesisBatchWriter(WriteOptions.parse(self.options), schema, overwrite)
        writer.check()
        return writer

    def _checked_options(self, *, keeps_claims: bool) -> SparkOptions:
        """Return the options of a job that reads, parsed and checked. Raises: ConfigurationError if an option is invalid.

        - `keeps_claims`: whether the job is a query, whose tasks store claims (what they have read) and need a place for them.
        """
        from .options.other_connectors import OptionWarnings, collected_warnings, refuse_table
        from .options.spark_options import SparkOptions

        refuse_table(self.options)
        with collected_warnings() as texts:
            options = SparkOptions.parse(self.options, keeps_claims=keeps_claims)
            if not self._is_checked:  # Otherwise `schema` has checked the same options, in the process of `load()`.
                from .options.checks import check_job

                check_job(options)
        return replace(options, warnings=OptionWarnings(tuple(texts), self._is_checked))


_SCHEMAS = ("flink.deserializer.schema", "flink.deserializer.avro.schema")
"""Properties whose value may be the path of a file, which only the driver can read."""


@errors_as_one_sentence()
def _with_schema_texts(options: Mapping[str, str]) -> dict[str, str]:
    if not any(key.lower() in _SCHEMAS for key in options):
        return dict(options)
    from recordpublisher.plugins.deserializers.schemas import with_schema_texts

    return with_schema_texts(options)
