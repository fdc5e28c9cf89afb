"""The script of both halves: who produces what, who is stopped when. A second on the wall is a minute of event time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

STREAM, MORNING = "orders", "morning"
SHARDS, SUBTASKS = 6, 3
STOPPED = 1
"""The subtask that is stopped; it has two of the six shards."""

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
LOOKAHEAD_MS = 2 * MINUTE_MS
TRACKER_TIMEOUT_MS = 2_000
PER_SECOND = 10
"""Events of each shard that is written to."""

PROPERTIES: dict[str, Any] = {
    "flink.stream.initpos": "TRIM_HORIZON",
    "flink.watermark.timestamp.field": "at",
    "flink.watermark.lookahead.millis": LOOKAHEAD_MS,
    "flink.shard.idle.interval": 1_500,
    "flink.watermark.sync.interval": 500,
    "flink.watermark.tracker.timeout": TRACKER_TIMEOUT_MS,
    "flink.state.checkpoint.interval": 300,
    "flink.alarm.interval": 4_000,
}
"""The intervals of a real job, divided by about sixty."""


@dataclass(frozen=True, slots=True)
class Script:
    """The first half, in seconds since it began.

    One shard of the subtask falls silent, so that its queue is empty; the subtask is stopped for longer than idle interval and tracker
    timeout; when it runs again, its other shard, which has never had a record, gets its first ones.
    """

    silent_from: float = 4.0
    stopped_at: float = 5.0
    continued_at: float = 11.0
    spoken_from: float = 12.5
    ends_at: float = 18.0

    def events(self, others: Sequence[int], silent: int, late: int, base_ms: int) -> Iterator[tuple[float, int, int]]:
        """(second, number of the shard, event time): `silent` and `late` are the shards of the subtask that is stopped."""
        for shard in others:
            yield from steady(shard, 0.0, self.ends_at, base_ms)
        yield from steady(silent, 0.0, self.silent_from, base_ms)
        yield from steady(late, self.spoken_from, self.ends_at, base_ms)


def steady(shard: int, begin: float, end: float, base_ms: int, speed: int = 60) -> Iterator[tuple[float, int, int]]:
    """Events of one shard from second to second; event time runs `speed` times as fast as the clock."""
    for number in range(round(begin * PER_SECOND), round(end * PER_SECOND)):
        at = number / PER_SECOND
        yield at, shard, base_ms + round(at * 1000 * speed)
