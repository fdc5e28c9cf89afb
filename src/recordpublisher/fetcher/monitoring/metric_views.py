"""ShardView and SubtaskView: what metrics are computed from. Gauges of a shard keep growing while nothing is read or emitted (A1)."""

from dataclasses import dataclass

from ..checkpoints.checkpoint_scheduler import CheckpointTimes
from ..coordination.watermark_tracker import WatermarkTracker
from ..leases.lease_counts import LeaseCounts
from ..pipeline.emitter import Emitter
from ..pipeline.read_block import ReadBlock
from ..pipeline.read_intake import ReadIntake
from ..pipeline.suspension import SuspensionDetector
from ..shards.retention_check import time_to_loss_ms
from ..shards.shard_entry import ShardEntry
from ..shards.shard_table import ShardTable
from ..watermarks.alignment import Alignment
from .alarm_monitor import AlarmMonitor
from .retention_periods import RetentionPeriods
from .workers_wanted import WorkersWanted

STALE_READ_MS = 30_000
"""A read at the tip is valid for this long. After that the distance to the tip is unknown, and the gauge grows."""


@dataclass(frozen=True, slots=True)
class ShardView:
    """One shard at one moment: `now_ms` epoch ms, `now` monotonic seconds, `retention_ms` of its stream if known.

    `blocked`: why its next read waits.
    """

    entry: ShardEntry
    now_ms: int
    now: float
    retention_ms: int | None = None
    has_alarm: bool = False
    blocked: ReadBlock | None = None

    @property
    def millis_behind_latest(self) -> int:
        """See the function of that name."""
        return millis_behind_latest(self.entry, self.now_ms)

    @property
    def held_ms(self) -> int:
        """For how long alignment has held the shard back so far."""
        since = self.entry.status.held_since
        return round((self.entry.status.held_seconds + (0.0 if since is None else self.now - since)) * 1000)

    @property
    def last_emit_age_ms(self) -> int | None:
        """Time since its last record was written; before the first one, since the subtask owns the shard."""
        since = (
            self.entry.emission.last_emit_ms
            if self.entry.emission.last_emit_ms is not None
            else self.entry.owned_since_ms
        )
        return None if since is None else self.now_ms - since

    @property
    def time_to_retention_loss_ms(self) -> int | None:
        """Time left until a record that was not emitted may be past retention (S5)."""
        return time_to_loss_ms(self.entry.snapshot_state, self.retention_ms, self.now_ms)


def millis_behind_latest(entry: ShardEntry, now_ms: int) -> int:
    """The value of the last read, plus the time since then if records were left or the read is old; -1 before the first read.

    A shard that is held back is not read. Without the time since then its gauge would keep its last value and hide an outage.
    """
    last = entry.metrics.millis_behind_latest
    if last < 0 or entry.reading.last_read_ms is None:
        return last
    age = max(0, now_ms - entry.reading.last_read_ms)
    is_growing = last > 0 or entry.reading.queue.records > 0 or age > STALE_READ_MS
    return last + age if is_growing and entry.is_open else last


@dataclass(frozen=True, slots=True)
class SubtaskView:
    """The parts of a fetcher that metrics of a subtask are read from."""

    table: ShardTable
    tracker: WatermarkTracker
    alignment: Alignment
    emitter: Emitter
    intake: ReadIntake
    alarm_monitor: AlarmMonitor
    retention: RetentionPeriods
    suspension: SuspensionDetector
    checkpoints: CheckpointTimes
    leases: LeaseCounts
    workers_wanted: WorkersWanted

    @property
    def entries(self) -> list[ShardEntry]:
        """Every shard that the subtask owns."""
        return list(self.table)

    def observe_load(self, now_ms: int) -> None:
        """Now and then, in a group: how far its shards are behind, and what it has written."""
        if self.tracker.worker is None:
            return
        lags_ms = {entry.key: millis_behind_latest(entry, now_ms) for entry in self.table if entry.is_open}
        self.workers_wanted.observe(lags_ms, self.emitter.records)
