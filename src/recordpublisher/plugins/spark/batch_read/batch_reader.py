"""The reader with which Spark plans a batch read on the driver, and reads in each task."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from recordpublisher.fetcher.pipeline.bounds import Bounds

from ..columns.chosen_columns import chosen_columns
from ..options.spark_options import SparkOptions
from ..outages import OutageWatch
from ..process.driver_errors import one_sentence
from ..process.python_worker import log_to_stderr
from .batch_plan import ShardRange, shard_ranges, shared_among
from .read_range import ReadRange


class RangePartition(InputPartition):  # type: ignore[misc] # pyspark is not typed here
    """The parts of shards that one task reads, in the form that Spark sends."""

    def __init__(self, parts: tuple[ShardRange, ...]) -> None:
        super().__init__(", ".join(part.shard.key for part in parts))
        self.parts = parts


class KinesisBatchReader(DataSourceReader):  # type: ignore[misc]
    """Plans and reads a batch read.

    Spark makes a reader for each action, so everything that decides the rows is in the options and `positions`.
    """

    def __init__(self, options: SparkOptions, positions: ReadRange, schema: Any) -> None:
        self._options = options
        self._positions = positions
        self._schema = chosen_columns(schema)

    @one_sentence()
    def partitions(self) -> list[RangePartition]:
        """Return the tasks, which share the shards.

        Raises: ConfigurationError if a position is invalid; StreamNotFoundError if there is no such stream; DataLossError if the start is
        past retention; OutageError if a service was away for too long.
        """
        from ..service.kinesis_service import KinesisService

        log_to_stderr()
        self._options.warnings.tell()
        options, service = self._options, KinesisService(self._options)
        try:
            outages = OutageWatch(options.max_outage_ms, is_batch_read=True)
            parts = outages.wait_out(
                lambda: shard_ranges(options.streams, self._positions, service, options.accepts_loss)
            )
        finally:
            service.close()
        return [RangePartition(each) for each in shared_among(options.tasks_of_batch_read(len(parts)), parts)]

    def read(self, partition: RangePartition) -> Iterator[Any]:
        """Yield the rows of one task as Arrow batches."""
        from ..columns.reused_memory import ReusedMemory
        from .background_read import background_reader
        from .range_read import RangeRead

        options = self._options
        bounds = Bounds(
            max_time=options.window_ms / 1000,
            max_records=options.max_task_records,
            max_bytes=options.max_bytes,
            stop_at_tip=True,
        )
        with one_sentence():
            yield from RangeRead(
                partition.parts,
                background_reader(options),
                bounds,
                options.max_outage_ms,
                options.accepts_loss,
                self._schema,
                ReusedMemory.pair_of_process(),
            ).rows()
