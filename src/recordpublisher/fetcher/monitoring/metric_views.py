"""ShardView: gauges of a shard that go on growing while nothing is read or emitted (A1)."""

from __future__ import annotations

from dataclasses import dataclass

from ..coordination.watermark_tracker import WatermarkTracker
from ..pipeline.emitter import Emitter
from ..pipeline.shard_queues import ShardQueues
from ..pipeline.suspension import SuspensionDetector
from ..shards.shard_table import ShardEntry, ShardTable
from ..watermarks.alignment import Alignment
from .monitor import Monitor

STALE_ANSWER_MS = 30_000
"""An answer that stood at the tip says so for this long; later nobody knows, and the gauge grows."""


@dataclass(frozen=True, slots=True)
class ShardView:
    """One shard, looked at now: `now_ms` epoch ms, `now` monotonic seconds, `retention_ms` of its stream where it is known."""

    entry: ShardEntry
    now_ms: int
    now: float
    retention_ms: int | None = None
    has_alarm: bool = False

    @property
    def millis_behind_latest(self) -> int:
        """What the last answered read said, and the time since where it left something behind or nobody has asked for long.

        In the outage that this library must not repeat, the gauge kept its last value: the held shard was read no more.
        """
        entry = self.entry
        said = entry.metrics.millis_behind_latest
        if said < 0 or entry.answered_ms is None or not entry.is_open:
            return said
        age = max(0, self.now_ms - entry.answered_ms)
        is_behind = said > 0 or entry.queued_records > 0
        return said + age if is_behind or age > STALE_ANSWER_MS else said

    @property
    def held_ms(self) -> int:
        """How long alignment has held the shard back, until now."""
        since = self.entry.held_since
        return round((self.entry.held_seconds + (0.0 if since is None else self.now - since)) * 1000)

    @property
    def last_emit_age_ms(self) -> int | None:
        """Since the last write of its records; before the first, since the subtask has the shard."""
        since = self.entry.last_emit_ms if self.entry.last_emit_ms is not None else self.entry.owned_since_ms
        return None if since is None else self.now_ms - since

    @property
    def time_to_retention_loss_ms(self) -> int | None:
        """What is left before a record that was not emitted may be past retention: S5's rule, ahead of time.

        Counted from the later of the last emitted record's arrival and the last read at the tip, else from a start by timestamp.
        """
        state = self.entry.confirmed_state
        known = [moment for moment in (state.arrival_ms, state.tip_ms) if moment is not None]
        safe_until = max(known) if known else state.start.timestamp_ms
        if self.retention_ms is None or safe_until is None or state.ended:
            return None
        return safe_until + self.retention_ms - self.now_ms


@dataclass(frozen=True, slots=True)
class SubtaskView:
    """The parts of a fetcher that know something of it."""

    table: ShardTable
    tracker: WatermarkTracker
    alignment: Alignment
    emitter: Emitter
    intake: ShardQueues
    monitor: Monitor
    pulse: SuspensionDetector

    @property
    def entries(self) -> list[ShardEntry]:
        """Every shard that the subtask has."""
        return list(self.table)
