"""Spark's reader in mode CONTINUOUS: planning on the driver, and `read` in a task, on another instance."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from recordpublisher.plugins.stores.by_location import write_once_store_of
from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.clock import SystemClock

from ..columns.arrow_rows import ARROW_SCHEMA, chosen_of
from ..driver_errors import one_sentence
from ..options import SparkOptions
from ..outages import OutageWatch
from ..python_worker import log_to_stderr, worker_loop
from .query_driver import QueryDriver, query_driver
from .row_file import StoredFile, rows_of
from .wal_offset import WalOffset
from .wal_planner import WalPlanner

LOG = logging.getLogger("recordpublisher.spark")
EXPERIMENTAL = (
    "mode=continuous is experimental: its options and its stored format may change without a migration. mode=batch is supported; "
    "docs/spark/continuous.md says what is missing"
)


class ContinuousPartition(InputPartition):  # type: ignore[misc] # pyspark is not typed here
    """The batch between two offsets, as Spark carries it to its task. Without files (None) the task looks for them in the log."""

    def __init__(self, start: WalOffset, end: WalOffset, files: list[StoredFile] | None) -> None:
        super().__init__(end.batch)
        self.start = start
        self.end = end
        self.files = files


class ContinuousStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Spark's reader in mode CONTINUOUS; `KinesisStreamReader` is that of mode BATCH."""

    def __init__(self, options: SparkOptions, schema: pa.Schema = ARROW_SCHEMA) -> None:
        self._options = options
        self._schema = schema
        self._query_driver: QueryDriver | None = None

    # --- on the driver ---------------------------------------------------------------------------------------------------------

    @one_sentence
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint starts."""
        return self._driver().initial_offset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Admission control by records, approximately; the planner limits the bytes."""
        return ReadAllAvailable() if self._options.max_records is None else ReadMaxRows(self._options.max_records)

    @one_sentence
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch, or `start` when there is none."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._driver().next_offset(WalOffset.from_json(start), rows).to_json()

    @one_sentence
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[ContinuousPartition]:
        """The one task of the batch between two offsets; none for a batch without rows."""
        begin, stop = WalOffset.from_json(start), WalOffset.from_json(end)
        files = self._driver().files(begin, stop)
        return [] if files == [] else [ContinuousPartition(begin, stop, files)]

    @one_sentence
    def commit(self, end: dict[str, Any]) -> None:
        """Spark has committed the batch that ends at `end`."""
        self._driver().commit(WalOffset.from_json(end))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Figures of the last plan. Spark shows them as `latestOffset` in the query's progress; a source has no other place for them."""
        figures, texts = self._driver().figures, self._options.warnings.texts
        return {**figures, "warnings": list(texts)} if figures and texts else figures or None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Stop at the tips of the shards (Trigger.AvailableNow)."""
        self._driver().prepare_available_now()

    def stop(self) -> None:
        """Does nothing: Spark does not call it when a query stops."""

    # --- in a task -------------------------------------------------------------------------------------------------------------

    def read(self, partition: ContinuousPartition) -> Iterator[Any]:
        """The rows of one task, as Arrow batches."""
        options, store, loop = self._options, self._store(), worker_loop()
        watch = OutageWatch(options.max_outage_ms)
        files = partition.files
        if files is None:
            planner = WalPlanner(store, SystemClock(), options.retain)
            files = watch.wait_out(lambda: loop.run(planner.files(partition.start, partition.end)))
        rows = rows_of(files, store, loop, options.metadata_location, watch)
        return (chosen_of(batch, self._schema) for batch in rows)

    def _driver(self) -> QueryDriver:
        if self._query_driver is None:
            log_to_stderr()
            self._options.warnings.tell()
            LOG.warning(EXPERIMENTAL)
            self._query_driver = query_driver(self._options, self._store(), worker_loop(), SystemClock())
        return self._query_driver

    def _store(self) -> WriteOnceStore:
        """The log's store: one for each process, with a client that stays open."""
        options = self._options
        return worker_loop().cached(
            ("wal", options.metadata_location, *sorted(options.properties.items())),
            lambda: write_once_store_of(options.metadata_location, "metadataLocation", options.properties),
        )
