"""A model of the old rule of Flink's Kinesis connector (before FLINK-29099): which watermark a subtask sends, and when.

Written after `KinesisDataFetcher.emitWatermark` and its `WatermarkSyncCallback`. It serves as a counter-example.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlinkShard:
    """`ShardWatermarkState`: the last emitted watermark (None: none yet), that of the queue's head, and when a record last came."""

    emitted: int | None
    head: int | None
    queued: int
    updated_ms: int


@dataclass
class FlinkSubtask:
    """The state of one subtask in the connector. Shards' times are epoch ms of this machine, watermarks epoch ms of event time."""

    idle_interval_ms: int
    last_watermark: int | None = None
    next_watermark: int | None = None
    propagated: int | None = None
    last_global: int | None = None
    is_idle: bool = False

    def emit_watermark(self, shards: Iterable[FlinkShard], now_ms: int) -> None:
        """Called every watermark interval. A shard without a record for the idle interval is idle, whatever the reason (W3 is ours)."""
        counting = [shard for shard in shards if self._counts(shard, now_ms)]
        if not counting:
            self.is_idle = True
            return
        lowest = min(shard.emitted for shard in counting if shard.emitted is not None)
        if self.last_watermark is None or lowest > self.last_watermark:
            self.last_watermark = lowest
            self.is_idle = False  # and nowhere else: data that arrives does not end idleness (W4 is ours)
        self.next_watermark = min(_next(shard) for shard in counting)

    def watermark_to_send(self) -> int | None:
        """Called every sync interval: the watermark to send to the coordinator, None to send nothing.

        This is the defect: an idle subtask whose own value has not changed sends nothing, and keeps the global watermark that it received
        last. The connector's source said "TODO: refresh watermark while idle" here.
        """
        if self.next_watermark is None or (self.is_idle and self.next_watermark == self.propagated):
            return None
        self.propagated = self.next_watermark
        return self.next_watermark

    def receive_global_watermark(self, value: int | None) -> None:
        """Keep the coordinator's response as the limit from now on: it may be lower than the last one (W6 is ours)."""
        self.last_global = value

    def _counts(self, shard: FlinkShard, now_ms: int) -> bool:
        """A shard that has emitted nothing does not count, even when its queue is full."""
        if shard.emitted is None:
            return False
        is_fresh = shard.updated_ms >= now_ms - self.idle_interval_ms
        return is_fresh or shard.queued > 0 or self.last_watermark is None or shard.emitted > self.last_watermark


@dataclass
class FlinkCoordinator:
    """The accumulator in the job manager: the last watermark of each subtask, and the lowest of the recent ones."""

    timeout_ms: int

    def __post_init__(self) -> None:
        self._entries: dict[int, tuple[int, int]] = {}

    def update(self, subtask: int, watermark: int, now_ms: int) -> int:
        """Overwrite the subtask's entry, also by a lower value, and return the global watermark."""
        self._entries[subtask] = (watermark, now_ms)
        return min(value for value, sent_ms in self._entries.values() if sent_ms + self.timeout_ms >= now_ms)


def _next(shard: FlinkShard) -> int:
    """The head of the queue stands for its shard, so that a held record can raise the global value."""
    value = shard.head if shard.head is not None else shard.emitted
    assert value is not None
    return value


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--timeout-ms", type=int, required=True)
    given = parser.parse_args()
    asyncio.run(_serve(given.port, FlinkCoordinator(given.timeout_ms)))


async def _serve(port: int, coordinator: FlinkCoordinator) -> None:
    async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            async for line in reader:
                message = json.loads(line)
                value = coordinator.update(message["subtask"], message["watermark"], round(time.time() * 1000))
                writer.write(json.dumps({"global": value}).encode() + b"\n")
                await writer.drain()

    async with await asyncio.start_server(serve_client, "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    main()
