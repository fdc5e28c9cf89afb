"""`format("kinesis")`: Spark's Python data source. The driver plans batches, tasks read them, and writers put rows into streams.

Spark imports this module in several processes for each query. So what only one of them needs is imported at its first use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError

from .columns.read_schema import SPARK_SCHEMA
from .options.positions import END_OPTION, ENDING_POSITION, ReadPositions
from .options.spark_options import SparkOptions
from .options.starts import starts_by_shard, with_starts
from .options.unknown_options import (
    OptionWarnings,
    collected_warnings,
    refuse_new_table,
    refuse_table,
    silence_where_writes_are_committed,
)
from .process.driver_errors import RefusedQuery, one_sentence
from .process.python_worker import log_to_stderr, worker_loop
from .source.offset import BatchOffset
from .versions import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow, check_reads_queries

if TYPE_CHECKING:
    import pyarrow as pa

    from .batch_read.batch_reader import KinesisBatchReader
    from .query_planner import QueryPlanner
    from .source.task_read import TaskPlan
    from .writer.data_writers import KinesisBatchWriter, KinesisStreamWriter


class KinesisSource(DataSource):  # type: ignore[misc] # pyspark is not typed here
    """The entry point of format "kinesis": its options, and when they were loaded.

    Spark makes one for each `load()` and passes copies of it to every action on that DataFrame. So NOW, the end of a batch read, is the
    same for all of them.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._loaded_ms = SystemClock().now_ms() + 1  # a record of this very millisecond has arrived before the end
        self._has_warned = False

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kinesis"

    @one_sentence()
    def schema(self) -> str:
        """The columns of a read. Raises: ConfigurationError when the stream is loaded (C2)."""
        refuse_new_table(self.options)
        # Spark does not tell whether a query or a batch read is loaded, and only a query needs a place for claims
        options = self._checked_options(keeps_claims=False)
        if options.properties.is_set(ENDING_POSITION):
            ReadPositions.parse(options.properties, options.streams, self._loaded_ms)
        options.warnings.tell()
        self._has_warned = True
        return SPARK_SCHEMA

    @one_sentence()
    def reader(self, schema: Any) -> KinesisBatchReader:
        """The reader of a batch read. Raises: ConfigurationError."""
        from .batch_read.batch_reader import KinesisBatchReader

        options = self._checked_options(keeps_claims=False)
        positions = ReadPositions.parse(options.properties, options.streams, self._loaded_ms)
        return KinesisBatchReader(options, positions, schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader of a query; one that raises what is wrong with the options or the schema."""
        try:
            return self._query_reader(schema)
        except Exception as error:
            return RefusedQuery(error)

    def _query_reader(self, schema: Any) -> DataSourceStreamReader:
        from .columns.chosen_columns import chosen_columns

        check_reads_queries()
        return KinesisStreamReader(self.query_options(), chosen_columns(schema))

    def query_options(self) -> SparkOptions:
        """The options of a query. Raises: ConfigurationError, also for those of a batch read."""
        options = self._checked_options(keeps_claims=True)
        end = options.properties.value(ENDING_POSITION)
        if end is not None:
            raise ConfigurationError(END_OPTION, end, "no end", reason="this is for spark.read")
        return options

    @one_sentence()
    def streamWriter(self, schema: Any, overwrite: bool) -> KinesisStreamWriter:  # noqa: N802 - Spark's name
        """The writer of a query. Raises: ConfigurationError, StreamNotFoundError when the first batch is planned."""
        from .writer.data_writers import KinesisStreamWriter
        from .writer.write_options import WriteOptions

        silence_where_writes_are_committed()
        writer = KinesisStreamWriter(WriteOptions.parse(self.options), schema)
        writer.check()
        return writer

    @one_sentence()
    def writer(self, schema: Any, overwrite: bool) -> KinesisBatchWriter:
        """The writer of a batch job. Raises: as `streamWriter`; ConfigurationError for the mode "overwrite"."""
        from .writer.data_writers import KinesisBatchWriter
        from .writer.write_options import WriteOptions

        writer = KinesisBatchWriter(WriteOptions.parse(self.options), schema, overwrite)
        writer.check()
        return writer

    def _checked_options(self, *, keeps_claims: bool) -> SparkOptions:
        """The options of a job that reads. Raises: ConfigurationError."""
        from .options.checks import check_job

        refuse_table(self.options)
        with collected_warnings() as texts:
            options = SparkOptions.parse(with_starts(self.options), keeps_claims=keeps_claims)
            check_job(options)
        starts_by_shard(options.properties, options.streams)
        return replace(options, warnings=OptionWarnings(tuple(texts), self._has_warned))


class KinesisPartition(InputPartition):  # type: ignore[misc]
    """One task's plan, as Spark carries it."""

    def __init__(self, plan: TaskPlan) -> None:
        super().__init__(plan.name)
        self.plan = plan


class KinesisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Spark uses one class in two places: the driver plans with one instance, and each task reads with another."""

    def __init__(self, options: SparkOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._planner: QueryPlanner | None = None

    # --- on the driver ---------------------------------------------------------------------------------------------------------

    @one_sentence()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint starts."""
        return self._planning().initial_offset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Admission control by records. Spark knows one limit at a time, so bytes are limited in the plans of the tasks."""
        return ReadAllAvailable() if self._options.max_records is None else ReadMaxRows(self._options.max_records)

    @one_sentence()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The plan of the next batch, or `start` when there is none."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._planning().next_offset(BatchOffset.from_json(start), rows).to_json()

    @one_sentence()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[KinesisPartition]:
        """The tasks of the batch that `end` plans, after that of `start`."""
        plans = [
            KinesisPartition(plan)
            for plan in self._planning().partitions(BatchOffset.from_json(start), BatchOffset.from_json(end))
        ]
        worker_loop().freeze_heap()
        return plans

    @one_sentence()
    def commit(self, end: dict[str, Any]) -> None:
        """Spark has committed the batch of `end`; old claims are removed in the background."""
        worker_loop().start(asyncio.to_thread(self._planning().commit, BatchOffset.from_json(end)))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Figures of the last plan. Spark shows them as `latestOffset` in the query's progress; a source has no other place for them."""
        return self._planning().figures()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Stop at the tips as of now."""
        self._planning().prepare_available_now()

    def stop(self) -> None:
        """Does nothing: Spark does not call it when a query stops."""

    # --- in a task -------------------------------------------------------------------------------------------------------------

    def read(self, partition: KinesisPartition) -> Iterator[Any]:
        """The rows of one task, as Arrow batches."""
        from .columns.reused_memory import ReusedMemory
        from .source.batch_claims import claim_store
        from .source.task_read import TaskRead, shard_reader

        plan = partition.plan
        with one_sentence():
            read = shard_reader(self._options, plan.consumer_arns)
            memory = ReusedMemory.of_process()
            yield from TaskRead(plan, claim_store(self._options), read, schema=self._schema, memory=memory).rows()

    def _planning(self) -> QueryPlanner:
        if self._planner is None:
            from .query_planner import QueryPlanner
            from .service.kinesis_service import KinesisService
            from .source.batch_claims import claim_store
            from .source.batch_planner import BatchPlanner

            log_to_stderr()
            self._options.warnings.tell()
            service, store = KinesisService(self._options), claim_store(self._options)
            self._planner = QueryPlanner(BatchPlanner(self._options, service, store))
        return self._planner
