"""WalFetcher: a DataFetcher that reads the query's streams into the write-ahead log."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from recordpublisher.fetcher.checkpoints.snapshot import snapshot_to_json
from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.runtime.data_fetcher import DataFetcher
from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.properties.groups.discovery_and_state import STATE_URI

from ..dropped_streams import dropped_streams
from ..options import SparkOptions
from ..service.kinesis_service import KinesisService
from ..service.planning_port import PlanningPort
from ..service.task_properties import task_properties
from ..source.initial_shards import initial_shards, pinned
from ..source.query_warnings import QueryWarnings
from ..unknown_options import SPARK_OPTIONS
from .back_pressure import BackPressure
from .wal_entry import last_entry
from .wal_identity import wal_id
from .wal_progress import fetcher_figures, least_retention_left
from .wal_sink import WalSink
from .wal_writer import WalWriter

LOG = logging.getLogger("recordpublisher.spark")
LOSS_CHECK_SECONDS = 60.0
"""How often the fetcher looks how far its unread records are from their stream's retention."""


class WalFetcher:
    """One start of the fetcher, which has taken over the log. Owns the fetcher and its sink."""

    def __init__(
        self, options: SparkOptions, writer: WalWriter, state: State, pressure: BackPressure, clock: Clock
    ) -> None:
        """`options.properties` are the fetcher's. Raises: ConfigurationError."""
        self._pressure = pressure
        self._warnings = QueryWarnings(options)
        self._sink = WalSink(writer, state, pressure, options.continuous, self._global_watermark)
        # the state is in the log; Spark's own options are unknown to a fetcher
        properties = options.properties.merged(dict.fromkeys((STATE_URI.key, *SPARK_OPTIONS)))
        self._fetcher = DataFetcher(options.streams, properties, sink=self._sink, clock=clock)

    @classmethod
    async def take_over(
        cls, options: SparkOptions, store: WriteOnceStore, pressure: BackPressure, clock: Clock
    ) -> WalFetcher:
        """Take over the log; register fan-out consumers, which stay when the fetcher ends (F8). Raises: RecordPublisherError."""
        await wal_id(store)
        await _check_streams(options, store)
        service = await asyncio.to_thread(KinesisService, options)
        try:
            arns = await asyncio.to_thread(service.consumer_arns)
            writer = WalWriter(store, clock)
            state = await writer.take_over(lambda: asyncio.to_thread(starting_state, options, service))
        finally:
            await asyncio.to_thread(service.close)
        properties = task_properties(options.properties, arns)
        return cls(replace(options, properties=properties), writer, state, pressure, clock)

    async def run(self, stop_at_tip: bool = False) -> int:
        """Read until `stop`, or to the tips; returns how many records were logged. Raises: RecordPublisherError."""
        async with self._fetcher as fetcher:
            warning = asyncio.create_task(self._warn_of_losses())
            try:
                await fetcher.run_bounded(stop_at_tip=stop_at_tip)
            finally:
                warning.cancel()
        return self._sink.records

    def stop(self) -> None:
        """End once everything read is in the log; call it in the loop's thread."""
        self._pressure.release()
        self._fetcher.stop()

    def figures(self) -> dict[str, object]:
        """Its part of the query's progress. Call it in the loop's thread."""
        return fetcher_figures(self._fetcher.metrics(), self._fetcher.retention_ms)

    def warn_of_loss(self) -> None:
        """Warn once if unread records come near their stream's retention."""
        self._warnings.retention_left(least_retention_left(self._fetcher.metrics(), self._fetcher.retention_ms))

    async def _warn_of_losses(self) -> None:
        while True:
            await asyncio.sleep(LOSS_CHECK_SECONDS)
            self.warn_of_loss()

    def _global_watermark(self) -> int | None:
        value: int | None = self._fetcher.metrics()["subtask"]["globalWatermark"]
        return value


def starting_state(options: SparkOptions, service: PlanningPort) -> State:
    """A snapshot of a job that has read nothing: every shard at its starting position, LATEST as a time (P3).

    Raises: as `initial_shards`.
    """
    given = service.starting_position()
    start = pinned(given, options.streams[0], service)
    shards = {shard.key: state for shard, state in initial_shards(options, service, start)}
    return snapshot_to_json(shards, None if start == given else start.timestamp_ms, 1, 0, 1)


async def _check_streams(options: SparkOptions, store: WriteOnceStore) -> None:
    """Warn of streams that are no longer read. Raises: ConfigurationError when none of the log's streams is among the options."""
    found = await last_entry(store)
    known = set() if found is None else {key.rpartition("/")[0] for key in found[1].state["shards"]}
    dropped = dropped_streams(known, options.streams)
    if dropped:
        LOG.warning(
            "these streams are not read any more, their positions are forgotten: %s", ", ".join(sorted(dropped))
        )
