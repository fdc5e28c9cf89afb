"""What is produced and done in both parts of the replay, and when. One second of wall time is a minute of event time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

STREAM, CATCH_UP_STREAM = "orders", "catch-up"
SHARDS, WORKERS = 6, 3
STOPPED = 1
"""The worker that is stopped; it has two of the six shards."""

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
LOOKAHEAD_MS = 2 * MINUTE_MS
LEASE_MS = 2_000
"""A worker that is stopped for longer is replaced."""
EVENTS_PER_SECOND = 10
"""Of each shard that is written to."""

PROPERTIES: dict[str, Any] = {
    "flink.stream.initpos": "TRIM_HORIZON",
    "flink.watermark.timestamp.field": "at",
    "flink.watermark.lookahead.millis": LOOKAHEAD_MS,
    "flink.shard.idle.interval": 1_500,
    "flink.watermark.sync.interval": 500,
    "flink.lease.duration": LEASE_MS,
    "flink.state.checkpoint.interval": 300,
    "flink.alarm.interval": 4_000,
}
"""The intervals of a real job, divided by about sixty."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The first part, in seconds since it began.

    One shard of the worker falls silent, so that its queue is empty. The worker is stopped for longer than idle interval and
    lease, so that others take its shards. When it runs again, its other shard, which has never had a record, gets its first ones.
    """

    silent_from: float = 4.0
    stopped_at: float = 5.0
    continued_at: float = 11.0
    late_from: float = 12.5
    ends_at: float = 18.0

    def events(self, others: Sequence[int], silent: int, late: int, base_ms: int) -> Iterator[tuple[float, int, int]]:
        """(second, number of the shard, event time). `silent` and `late` are the shards of the worker that is stopped."""
        for shard in others:
            yield from steady_events(shard, 0.0, self.ends_at, base_ms)
        yield from steady_events(silent, 0.0, self.silent_from, base_ms)
        yield from steady_events(late, self.late_from, self.ends_at, base_ms)


def steady_events(
    shard: int, begin: float, end: float, base_ms: int, speed: int = 60
) -> Iterator[tuple[float, int, int]]:
    """Events of one shard from second to second. Event time runs `speed` times as fast as the clock."""
    for number in range(round(begin * EVENTS_PER_SECOND), round(end * EVENTS_PER_SECOND)):
        at = number / EVENTS_PER_SECOND
        yield at, shard, base_ms + round(at * 1000 * speed)
