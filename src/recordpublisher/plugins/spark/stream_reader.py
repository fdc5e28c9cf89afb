"""The readers of a streaming query: `ReaderWithStart` for Spark 4.2 and newer, `ReaderWithoutStart` for 4.0 and 4.1.

Spark uses one class in two places: the driver plans with one instance, and each task reads with another.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError

from .python_worker import errors_as_one_sentence, log_to_stderr, worker_loop
from .version_dependent_names import HAS_START, ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from .options.spark_options import SparkOptions
    from .source.offset import BatchOffset, ShardOffset
    from .source.patient_planner import PatientPlanner
    from .source.task_plans import TaskPlan


class KinesisStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """The common part of the readers for all versions of Spark: everything except how Spark asks for the next offset.

    The options and the schema (a StructType) are parsed by the first method that needs them. One of Spark's processes makes a reader only
    to send it to the tasks. And Spark 4.3 would hide errors of `streamReader` behind an UnboundLocalError of its own
    (`python_streaming_source_runner.py`).

    - `planner`: only used by tests.
    """

    def __init__(self, source: QuerySource, schema: Any, planner: PatientPlanner | None = None) -> None:
        self._source = source
        self._schema = schema
        self._planner = planner
        self._parsed: SparkOptions | None = None

    @property
    def _options(self) -> SparkOptions:
        if self._parsed is None:
            self._parsed = self._source.query_options()
        return self._parsed

    # --- on the driver ---------------------------------------------------------------------------------------------------------

    @errors_as_one_sentence()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[KinesisPartition]:
        """Return the tasks of a batch. `end` is the offset with the plan of that batch, and `start` the offset before it."""
        plans = [KinesisPartition(plan) for plan in self._planning().partitions(_offset(start), _offset(end))]
        # A batch without tasks does not count: a scheduled run ends with one, and would not gain from the freeze.
        if plans:
            worker_loop().freeze_heap()
        return plans

    @errors_as_one_sentence()
    def commit(self, end: dict[str, Any]) -> None:
        """Remove old claims (what tasks have read) in the background, because Spark has committed the batch of `end`."""
        worker_loop().run_in_background(asyncio.to_thread(self._planning().commit, _offset(end)))

    def stop(self) -> None:
        """Do nothing, because Spark does not call it when a query stops."""

    def _next_offset(self, start: dict[str, Any], rows: int | None, *, is_first: bool = False) -> dict[str, Any]:
        """Return the plan of the next batch, with at most `rows` rows, as plain JSON values.

        If there is none, return `start` itself. Spark sees from equal JSON texts that there is no new batch. `is_first`: whether this may
        be Spark's only call (`PatientPlanner.next_offset`).
        """
        before = _offset(start)
        planned = self._planning().next_offset(before, rows, is_first=is_first)
        return start if planned is before else planned.to_json()

    def _planning(self) -> PatientPlanner:
        if self._planner is None:
            from .row_columns import RowColumns
            from .source.batch_planner import BatchPlanner
            from .source.claims import claim_store
            from .source.kinesis_service import KinesisService
            from .source.patient_planner import PatientPlanner

            log_to_stderr()
            options = self._options
            RowColumns.chosen(self._schema, options.properties)  # Called for its errors, before anything is read.
            options.warnings.tell()
            service, store = KinesisService(options), claim_store(options)
            self._planner = PatientPlanner(BatchPlanner(options, service, store))
        return self._planner

    # --- in a task -------------------------------------------------------------------------------------------------------------

    def read(self, partition: KinesisPartition) -> Iterator[Any]:
        """Yield the rows of one task as Arrow batches."""
        from .arrow_rows import ReusedMemory
        from .row_columns import RowColumns
        from .source.claims import claim_store
        from .source.task_read import TaskRead, shard_reader

        plan = partition.plan
        with errors_as_one_sentence():
            # The options are cached, because each task gets a reader of its own, and parsing them takes 2 ms.
            loop, job = worker_loop(), sorted(self._source.options.items())
            options = loop.cached(("options", *job), lambda: self._options)
            schema = self._schema
            columns = loop.cached(
                ("columns", schema.json(), *job), lambda: RowColumns.chosen(schema, options.properties)
            )
            read = shard_reader(options, plan.consumer_arns, columns.values)
            memory = ReusedMemory.of_process()
            yield from TaskRead(plan, claim_store(options), read, columns=columns, memory=memory).rows()


class KinesisPartition(InputPartition):  # type: ignore[misc] # pyspark is not typed here
    """The plan of one task, in the form in which Spark sends it to the task."""

    def __init__(self, plan: TaskPlan) -> None:
        super().__init__(plan.name)
        self.plan = plan


class QuerySource(Protocol):
    """The data source that made a reader. The reader asks it for the parsed options."""

    options: Mapping[str, str]

    def query_options(self) -> SparkOptions:
        """Return the options of the query. Raises: ConfigurationError if an option is invalid."""


def _offset(plain: dict[str, Any]) -> BatchOffset:
    # Imported here because one of Spark's processes only pickles the reader. The import would take a tenth of its CPU.
    from .source.offset import BatchOffset

    return BatchOffset.from_json(plain)


class ReaderWithStart(KinesisStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The reader for Spark 4.2 and newer. Spark asks it for an offset after the current offset, with a limit of rows."""

    @errors_as_one_sentence()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset at which a query without a checkpoint starts."""
        return self._planning().initial_offset().to_json()

    @errors_as_one_sentence()
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a batch in records. Spark supports only one limit, so the plans of the tasks have the limit in bytes."""
        return ReadAllAvailable() if self._options.max_records is None else ReadMaxRows(self._options.max_records)

    @errors_as_one_sentence()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the plan of the next batch, or `start` if there is none."""
        return self._next_offset(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    @errors_as_one_sentence()
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the figures of the last planned batch, such as its number and how far the shards are behind.

        Spark shows them as `latestOffset` in the query's progress, because a source has no other place for them.
        """
        return self._planning().figures()

    @errors_as_one_sentence()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Make this a run with Trigger.AvailableNow. It ends at the tips (newest records) that the shards have at the next plan."""
        self._planning().prepare_available_now()


AVAILABLE_NOW_WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


class ReaderWithoutStart(KinesisStreamReader):
    """The reader for Spark 4.0 and 4.1. These versions do not tell a source the query's current offset, so the reader remembers it.

    - When a query starts again, Spark first asks for the tasks between the last offset of its log and that same offset, so the reader
      learns the current offset.
    - Later, the current offset is the one that the reader returned last. Spark logs each offset before it asks for the next one, or else
      ends the query.

    These versions show the returned offset as `latestOffset` in the query's progress, so each offset carries the figures of the progress.
    """

    def __init__(self, source: QuerySource, schema: Any, planner: PatientPlanner | None = None) -> None:
        super().__init__(source, schema, planner)
        self._last: dict[str, Any] | None = None
        """The current offset of the query, or None for a query without a checkpoint."""
        self._has_planned = False
        """Whether this process has given an offset to Spark."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return a placeholder for the offset before a query's first batch.

        Spark asks for it when the first batch is planned or runs again. Nothing depends on its content.
        """
        from .source.offset import BatchOffset

        return BatchOffset.unlisted(SystemClock().now_ms()).to_json()

    @errors_as_one_sentence()
    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the plan of the next batch, or the current offset if there is none."""
        start = self._last or self._planning().initial_offset().to_json()
        offset = self._next_offset(start, self._options.max_records, is_first=not self._has_planned)
        if offset is not start:
            offset["figures"] = self._planning().figures()
        self._last, self._has_planned = offset, True
        return offset

    @errors_as_one_sentence()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[KinesisPartition]:
        """Return the tasks of a batch. `end` is the offset with the plan of that batch, and `start` the offset before it.

        Raises: ConfigurationError if Spark asked for a new offset before it showed the query's current offset. The new offset was then
        planned as if the query were new, and rows would be lost. No log has this offset yet.
        """
        if not self._has_planned:
            self._last = end
        elif start == end:
            reason = (
                "if it is true, PySpark 4.0 and 4.1 ask a query that starts again for its next batch before they say where the "
                "last one ended, and rows would be lost. PySpark 4.2 and newer do not need it"
            )
            raise ConfigurationError(AVAILABLE_NOW_WRAPPER, "true", "false", reason=reason)
        return [] if start == end else super().partitions(start, end)


QueryReader = ReaderWithStart if HAS_START else ReaderWithoutStart
"""The reader for the installed version of Spark."""


# --- runs with Trigger.AvailableNow that are repeated until all records are read ------------------------------------------------------


def run_to_tips(start: Callable[[], Any]) -> int:
    """Run a query until it has read each shard to its tip, or to a record that arrived since this call. Return the number of runs.

    On Spark 4.2 and newer there is one run. Older versions may need several. A run in an outage of a service has no rows.

    - `start`: starts one run, always with the same checkpoint: `lambda: writer.trigger(availableNow=True).start()`.

    Raises: the error of a run.
    """
    began_ms, runs = SystemClock().now_ms(), 0
    while True:
        query = start()
        query.awaitTermination()
        runs += 1
        if HAS_START or has_read_all(query.lastProgress, began_ms):
            return runs


def has_read_all(progress: Mapping[str, Any] | None, began_ms: int) -> bool:
    """Return whether every shard was read up to `began_ms` (epoch ms), according to the offset of the last batch in `progress`.

    What the last batch itself has read does not count, because its offset was made before it ran.
    """
    texts = [source["endOffset"] or "" for source in (progress or {"sources": ()})["sources"]]
    # PySpark 4.0 and 4.1 convert the offset to the text of a dict.
    offsets = [_offset(ast.literal_eval(text)) for text in texts if "'plan'" in text]
    shards = [entry for offset in offsets for entry in offset.shards.values()]
    return bool(shards) and all(_is_read(entry, began_ms) for entry in shards)


def _is_read(entry: ShardOffset, began_ms: int) -> bool:
    return entry.state.ended or max(entry.state.tip_ms or 0, entry.state.arrival_ms or 0) >= began_ms
