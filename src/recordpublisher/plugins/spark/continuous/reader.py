"""Spark's reader of a spool: planning on the driver, and `read` in tasks, on another instance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.spark.python_worker import log_to_stderr, worker_loop
from recordpublisher.plugins.stores.by_location import object_store_of
from recordpublisher.plugins.stores.ports import ObjectStore
from recordpublisher.publishers.clock import SystemClock

from .driver_side import DriverSide, driver_side
from .identity import check_place
from .offset import SpoolOffset
from .planner import SpooledFile, SpoolPlanner
from .task import rows_of


class SpoolPartition(InputPartition):  # type: ignore[misc] # pyspark is not typed here
    """One task's files, as Spark carries them."""

    def __init__(self, files: list[SpooledFile]) -> None:
        super().__init__([file.name for file in files])
        self.files = files


class SpoolStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Mode CONTINUOUS; see KinesisStreamReader for BATCH."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._side: DriverSide | None = None

    # --- on the driver ---------------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint starts."""
        return self._driver().initial_offset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Admission control: records of one batch, about; bytes are looked after by the planner."""
        return ReadAllAvailable() if self._options.max_records is None else ReadMaxRows(self._options.max_records)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch, or `start` when there is none."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        planned = self._driver().next_offset(SpoolOffset.from_json(start), rows)
        return start if planned is None else planned.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[SpoolPartition]:
        """The tasks of the batch between two offsets."""
        tasks = self._driver().tasks(SpoolOffset.from_json(start), SpoolOffset.from_json(end))
        return [SpoolPartition(files) for files in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """The batch that `end` ends is done for good."""
        self._driver().commit(SpoolOffset.from_json(end))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Shown as `latestOffset` in the query's progress, where a source has no other room for figures."""
        return self._driver().figures or None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Stop with what is there now."""
        self._driver().prepare_available_now()

    def stop(self) -> None:
        """Nothing that matters may happen here: Spark does not call it when a query stops."""

    # --- in a task -------------------------------------------------------------------------------------------------------------

    def read(self, partition: SpoolPartition) -> Iterator[Any]:
        """The rows of one task, as Arrow batches."""
        return rows_of(partition.files, self._store(), worker_loop(), self._options.metadata_location)

    def _driver(self) -> DriverSide:
        if self._side is None:
            log_to_stderr()
            store, clock = self._store(), SystemClock()
            worker_loop().run(check_place(store, self._options.metadata_location))
            planner = SpoolPlanner(store, clock, self._options.retain)
            self._side = driver_side(self._options, store, planner, worker_loop())
        return self._side

    def _store(self) -> ObjectStore:
        """One for each process, with a client that stays open."""
        options = self._options
        return worker_loop().cached(
            ("spool", options.metadata_location, *sorted(options.properties.items())),
            lambda: object_store_of(options.metadata_location, "metadataLocation", options.properties),
        )
