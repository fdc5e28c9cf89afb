"""A fetcher at work in a lane, wherever it lives: in a task of an executor or beside the driver's planning."""

from __future__ import annotations

from recordpublisher.plugins.runtime.data_fetcher import DataFetcher
from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.stores.ports import ObjectStore
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.properties.table import STATE_URI

from .generation import Generation
from .lane import Lane
from .sink import SpoolSink


class LaneRun:
    """Owns the fetcher between the beginning and the end of `run`."""

    def __init__(
        self, options: SparkOptions, store: ObjectStore, generation: Generation, lane: int, clock: Clock | None = None
    ) -> None:
        """`options.properties` are those that the fetcher reads with. Raises: ConfigurationError."""
        settings = options.spool
        self._sink = SpoolSink(Lane(store, generation, lane, clock or SystemClock()), settings, self._global_watermark)
        self._fetcher = DataFetcher(
            options.streams,
            options.properties.merged({STATE_URI.key: None}),  # the spool has the state
            sink=self._sink,
            subtask=lane,
            parallelism=generation.lanes,
        )

    async def run(self, stop_at_tip: bool = False) -> int:
        """Read until `stop`, or to the tips; answers how many records went into the spool. Raises: RecordPublisherError."""
        async with self._fetcher as fetcher:
            await fetcher.run_bounded(stop_at_tip=stop_at_tip)
        return self._sink.records

    def stop(self) -> None:
        """End after what was read is in the spool; call it in the loop's thread."""
        self._sink.give_up_waiting()
        self._fetcher.stop()

    def _global_watermark(self) -> int | None:
        value: int | None = self._fetcher.metrics()["subtask"]["globalWatermark"]
        return value
