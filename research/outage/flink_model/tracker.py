"""The model as a tracker client, registered as a plugin."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from recordpublisher.fetcher.watermarks.watermark_tracker import SubtaskReport, WatermarkTracker
from recordpublisher.publishers.properties.groups.job import (
    EMIT_INTERVAL,
    IDLE_INTERVAL,
    SYNC_INTERVAL,
    TRACKER_ADDRESS,
)
from recordpublisher.publishers.properties.properties import Properties

from .rule import FlinkShard, FlinkSubtask

UNTHROTTLED = 2**62
"""Before the first response the connector does not limit anything."""

Shards = Callable[[], Mapping[str, Mapping[str, Any]]]
"""The metrics of a fetcher's shards, by key."""


def flink_tracker(shards: Shards) -> type[WatermarkTracker]:
    """A tracker class for a plugin. It reads these shards' metrics and not the library's reports."""

    class Flink(FlinkTracker):
        """Flink's old rule."""

        def __init__(self, properties: Properties) -> None:
            super().__init__(properties, shards)

    return Flink


class FlinkTracker(WatermarkTracker):
    """Two timers, as in the connector: one decides idleness, one asks the coordinator. Nothing is learned in between."""

    def __init__(self, properties: Properties, shards: Shards) -> None:
        host, _, port = (properties.value(TRACKER_ADDRESS) or "").rpartition(":")
        self._address = host, int(port)
        self._rule = FlinkSubtask(properties.value(IDLE_INTERVAL))
        self._emit_seconds = properties.value(EMIT_INTERVAL) / 1000
        self._sync_seconds = properties.value(SYNC_INTERVAL) / 1000
        self._shards = shards
        self._counts: dict[str, tuple[int, int]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, subtask: int, parallelism: int) -> None:
        """Connect and start both timers."""
        reader, writer = await asyncio.open_connection(*self._address)
        self._writer = writer
        self._tasks = [
            asyncio.create_task(self._emit_periodically()),
            asyncio.create_task(self._sync_periodically(subtask, reader, writer)),
        ]

    def report(self, report: SubtaskReport) -> int | None:
        """The library's report is ignored. The limit is the last response; there is none before the first."""
        return UNTHROTTLED if self._rule.last_global is None else self._rule.last_global

    def current(self) -> int | None:
        """The last response."""
        return self._rule.last_global

    async def close(self) -> None:
        """Stop both timers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writer.close()

    async def _emit_periodically(self) -> None:
        while True:
            now_ms = round(time.time() * 1000)
            self._rule.emit_watermark(
                [self._shard_view(key, one, now_ms) for key, one in self._shards().items()], now_ms
            )
            await asyncio.sleep(self._emit_seconds)

    async def _sync_periodically(
        self, subtask: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            await asyncio.sleep(self._sync_seconds)
            watermark = self._rule.watermark_to_send()
            if watermark is not None:
                writer.write(json.dumps({"subtask": subtask, "watermark": watermark}).encode() + b"\n")
                self._rule.receive_global_watermark(json.loads(await reader.readline())["global"])

    def _shard_view(self, key: str, shard: Mapping[str, Any], now_ms: int) -> FlinkShard:
        count, since = self._counts.get(key, (0, now_ms))
        if shard["numberOfDeaggregatedRecords"] != count:
            count, since = shard["numberOfDeaggregatedRecords"], now_ms
        self._counts[key] = (count, since)
        return FlinkShard(shard["watermark"], shard["nextWatermark"], shard["queuedRecords"], since)
