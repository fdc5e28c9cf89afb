"""ShardView: the metrics of one shard (A1). Gauges of a shard keep growing while nothing is read or emitted."""

from dataclasses import dataclass, fields

from recordpublisher.publishers.shard_metrics import ShardMetrics

from ..metric_types import COUNTER, FLAG, GAUGE, TEXT, Metric, MetricType, metric, metrics_of
from ..pipeline.read_block import ReadBlock
from ..shards.retention_check import time_to_loss_ms
from ..shards.shard_entry import ShardEntry

STALE_READ_MS = 30_000
"""A read at the tip is valid for this long. After that the distance to the tip is unknown, and the gauge grows."""


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

    @metric(GAUGE, "ms")
    def millis_behind_latest(self) -> int:
        """Age of the last record read, 0 at the shard's tip; it grows while records are left or the shard is not read; -1 before the
        first."""
        return millis_behind_latest(self.entry, self.now_ms)

    @metric(COUNTER, "records")
    def records(self) -> int:
        """Written to the sink."""
        return self.entry.emission.records

    @metric(COUNTER, "bytes")
    def bytes(self) -> int:
        """Payload written to the sink."""
        return self.entry.emission.payload_bytes

    @metric(TEXT)
    def stage(self) -> str:
        """WAITING for its parents, READING, DRAINING its queue after its end, ENDED."""
        return self.entry.stage.name

    @metric(TEXT)
    def parents(self) -> str | None:
        """The shards that were split or merged into it, with spaces between; null: none."""
        return " ".join(self.entry.shard.parents) or None

    @metric(GAUGE, "epoch ms")
    def watermark(self) -> int | None:
        """The shard watermark after the last record written."""
        return self.entry.state.watermark

    @metric(GAUGE, "epoch ms")
    def next_watermark(self) -> int | None:
        """The watermark of the next queued record."""
        return self.entry.next_watermark

    @metric(GAUGE, "records")
    def queued_records(self) -> int:
        """Read and not yet written."""
        return self.entry.reading.queue.records

    @metric(GAUGE, "bytes")
    def queued_bytes(self) -> int:
        """The same, as held in memory."""
        return self.entry.reading.queue.bytes

    @metric(FLAG)
    def idle(self) -> bool:
        """Open, and observed silent for the idle interval."""
        return self.entry.reading.is_idle and self.entry.is_open

    @metric(GAUGE, "ms")
    def silent_ms(self) -> int:
        """For how long the shard was observed silent."""
        return self.entry.reading.idleness.observed_ms

    @metric(FLAG)
    def excluded(self) -> bool:
        """So far behind that watermarks do not wait for it."""
        return self.entry.status.is_straggler

    @metric(COUNTER, "records")
    def late_after_idle(self) -> int:
        """Below the global watermark when written, although not late in their shard."""
        return self.entry.emission.late_after_idle

    @metric(COUNTER, "records")
    def late_after_takeover(self) -> int:
        """ELASTIC: the same, of a shard whose worker was sealed before it had stored its position."""
        return self.entry.emission.late_after_takeover

    @metric(FLAG)
    def held(self) -> bool:
        """Held back by alignment now."""
        return self.entry.status.is_held

    @metric(TEXT)
    def read_blocked_by(self) -> str | None:
        """Why its next read waits: `PARENTS`, `ALIGNMENT`, `FULL_QUEUE` or `MEMORY` (of the subtask); null: it does not wait."""
        return None if self.blocked is None else self.blocked.name

    @metric(COUNTER, "ms")
    def held_ms(self) -> int:
        """Held back by alignment so far."""
        since = self.entry.status.held_since
        return round((self.entry.status.held_seconds + (0.0 if since is None else self.now - since)) * 1000)

    @metric(GAUGE, "ms")
    def last_emit_age_ms(self) -> int | None:
        """Since the shard's last record was written, or the subtask owns it."""
        since = (
            self.entry.emission.last_emit_ms
            if self.entry.emission.last_emit_ms is not None
            else self.entry.owned_since_ms
        )
        return None if since is None else self.now_ms - since

    @metric(GAUGE, "ms")
    def time_to_retention_loss_ms(self) -> int | None:
        """Until an unwritten record may be past retention, at the tip the whole retention; negative: it may be lost."""
        return time_to_loss_ms(self.entry.snapshot_state, self.retention_ms, self.now_ms)

    @metric(FLAG)
    def alarm(self) -> bool:
        """Has unread records and wrote none for the alarm interval."""
        return self.has_alarm


def _of_reads() -> tuple[Metric[ShardView], ...]:
    """Those that publisher and consumer of a shard count."""
    return tuple(
        Metric(
            field.name,
            MetricType(field.metadata["type"]),
            field.metadata["unit"],
            field.metadata["description"],
            lambda view, name=field.name: getattr(view.entry.metrics, name),  # type: ignore[misc]
        )
        for field in fields(ShardMetrics)
        if field.metadata
    )


SHARD_METRICS: tuple[Metric[ShardView], ...] = (*metrics_of(ShardView), *_of_reads())
"""The reference page is generated from them, and exporters follow."""
