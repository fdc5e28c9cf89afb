"""The model as a tracker client: it enters by the door of plugins, and the library's core knows nothing of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskReport, WatermarkTracker
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import EMIT_INTERVAL, IDLE_INTERVAL, SYNC_INTERVAL, TRACKER_ADDRESS

from .flink_rule import FlinkShard, FlinkSubtask

UNTHROTTLED = 2**62
"""Before the first answer the connector lets everything through."""

Shards = Callable[[], Mapping[str, Mapping[str, Any]]]
"""The metrics of a fetcher's shards, by key."""


def flink_tracker(shards: Shards) -> type[WatermarkTracker]:
    """A tracker class, as plugins register them, that goes by these shards and not by what the library reports."""

    class Flink(FlinkTracker):
        """Flink's old rule."""

        def __init__(self, properties: Properties) -> None:
            super().__init__(properties, shards)

    return Flink


class FlinkTracker(WatermarkTracker):
    """Two timers, as in the connector: one judges idleness, one asks the coordinator. Between its questions nothing is learned."""

    def __init__(self, properties: Properties, shards: Shards) -> None:
        host, _, port = (properties.value(TRACKER_ADDRESS) or "").rpartition(":")
        self._address = host, int(port)
        self._rule = FlinkSubtask(properties.value(IDLE_INTERVAL))
        self._judge_seconds = properties.value(EMIT_INTERVAL) / 1000
        self._ask_seconds = properties.value(SYNC_INTERVAL) / 1000
        self._shards = shards
        self._counts: dict[str, tuple[int, int]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, subtask: int, parallelism: int) -> None:
        """Connect and start both timers."""
        reader, writer = await asyncio.open_connection(*self._address)
        self._writer = writer
        self._tasks = [asyncio.create_task(self._judge()), asyncio.create_task(self._ask(subtask, reader, writer))]

    def report(self, report: SubtaskReport) -> int | None:
        """What the library would say is not asked for; the gate is the last answer, and none at all before the first."""
        return UNTHROTTLED if self._rule.last_global is None else self._rule.last_global

    def current(self) -> int | None:
        """The last answer."""
        return self._rule.last_global

    async def close(self) -> None:
        """Stop both timers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writer.close()

    async def _judge(self) -> None:
        while True:
            now_ms = round(time.time() * 1000)
            self._rule.emit_watermark([self._seen(key, one, now_ms) for key, one in self._shards().items()], now_ms)
            await asyncio.sleep(self._judge_seconds)

    async def _ask(self, subtask: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(self._ask_seconds)
            watermark = self._rule.question()
            if watermark is not None:
                writer.write(json.dumps({"subtask": subtask, "watermark": watermark}).encode() + b"\n")
                self._rule.answered(json.loads(await reader.readline())["global"])

    def _seen(self, key: str, shard: Mapping[str, Any], now_ms: int) -> FlinkShard:
        count, since = self._counts.get(key, (0, now_ms))
        if shard["numberOfDeaggregatedRecords"] != count:
            count, since = shard["numberOfDeaggregatedRecords"], now_ms
        self._counts[key] = (count, since)
        return FlinkShard(shard["watermark"], shard["headWatermark"], shard["queuedRecords"], since)
