"""The metrics of one shard (A1). Metrics of time continue to grow while nothing is read or emitted."""

from collections.abc import Iterable
from dataclasses import fields

import msgspec

from recordpublisher.publishers.shard_metrics import ShardMetrics

from ..metric_types import COUNTER, FLAG, GAUGE, TEXT, Metric, MetricType, metric, metrics_of
from ..pipeline.memory_budget import ReadBlock
from ..shards.retention_check import time_to_loss_ms
from ..shards.shard_entry import ShardEntry
from ..sink import Unfinished, UnfinishedShard

STALE_READ_MS = 15_000
"""For this time after its last read (ms), a shard counts as being read. A silent subscription has an event every 5 s."""


class ShardView(msgspec.Struct, frozen=True):
    """The values from which the metrics of one shard are computed, at one moment.

    - `now_ms`: the time in epoch ms; `now`: the same moment in monotonic seconds.
    - `retention_ms`: the retention period of the shard's stream, or None if it is not known.
    - `has_alarm`: whether an alarm for the shard is active.
    - `blocked`: why the shard's next read waits, or None if it does not wait.
    - `unfinished`: the records that the sink has received and not finished.
    """

    entry: ShardEntry
    now_ms: int
    now: float
    retention_ms: int | None = None
    has_alarm: bool = False
    blocked: ReadBlock | None = None
    unfinished: UnfinishedShard | None = None

    @metric(GAUGE, "ms")
    def lag_ms(self) -> int | None:
        """Age of the oldest record that is not finished: not read, not written, or not handled by the sink.

        It is 0 if none is left, and null if the shard was not read yet.
        """
        return lag_ms(self.entry, self.unfinished, self.now_ms)

    @metric(GAUGE, "ms")
    def millis_behind_latest(self) -> int:
        """How far the reads are behind the shard's tip; -1 before the first read. It does not show how far the sink is behind.

        The time since the last read is added while the shard is behind its tip, is not read, or its calls fail.
        """
        return millis_behind_latest(self.entry, self.now_ms)

    @metric(COUNTER, "records")
    def records(self) -> int:
        """Records written to the sink."""
        return self.entry.emission.records

    @metric(COUNTER, "bytes")
    def bytes(self) -> int:
        """Payload bytes written to the sink."""
        return self.entry.emission.payload_bytes

    @metric(TEXT)
    def stage(self) -> str:
        """WAITING for its parents, READING, DRAINING its queue after its end, or ENDED."""
        return self.entry.stage.name

    @metric(TEXT)
    def parents(self) -> str | None:
        """The parents of the shard, which were split or merged into it, separated by spaces; null if there are none."""
        return " ".join(self.entry.shard.parents) or None

    @metric(GAUGE, "epoch ms")
    def watermark(self) -> int | None:
        """The shard's watermark after the last record written."""
        return self.entry.state.watermark

    @metric(GAUGE, "epoch ms")
    def next_watermark(self) -> int | None:
        """The watermark of the next queued record."""
        return self.entry.next_watermark

    @metric(GAUGE, "records")
    def queued_records(self) -> int:
        """Records read and not yet written."""
        return self.entry.reading.queue.records

    @metric(GAUGE, "bytes")
    def queued_bytes(self) -> int:
        """Bytes held in memory by records that were read and not yet written."""
        return self.entry.reading.queue.bytes

    @metric(GAUGE, "records")
    def unfinished_records(self) -> int:
        """Records that the sink has received and not handled, including records that it has dropped and that the next start reads again."""
        return 0 if self.unfinished is None else self.unfinished.records

    @metric(FLAG)
    def idle(self) -> bool:
        """Whether the shard is open, and was observed silent for `flink.shard.idle.interval`."""
        return self.entry.reading.is_idle and self.entry.is_open

    @metric(GAUGE, "ms")
    def silent_ms(self) -> int:
        """Time for which reads at the tip of the shard have found no records."""
        return self.entry.reading.idleness.observed_ms

    @metric(FLAG)
    def excluded(self) -> bool:
        """Whether the shard is so far behind that watermarks do not wait for it."""
        return self.entry.status.is_straggler

    @metric(FLAG)
    def held(self) -> bool:
        """Whether alignment holds back the shard now."""
        return self.entry.status.is_held

    @metric(TEXT)
    def read_blocked_by(self) -> str | None:
        """Why the shard's next read waits: `PARENTS`, `ALIGNMENT`, `FULL_QUEUE` or `MEMORY` (of the worker); null if it does not wait."""
        return None if self.blocked is None else self.blocked.name

    @metric(COUNTER, "ms")
    def held_ms(self) -> int:
        """How long alignment has held back the shard, in total."""
        since = self.entry.status.held_since
        return round((self.entry.status.held_seconds + (0.0 if since is None else self.now - since)) * 1000)

    @metric(GAUGE, "ms")
    def last_emit_age_ms(self) -> int | None:
        """Time since the shard's last record was written; before the first record, since the worker acquired the shard."""
        since = (
            self.entry.emission.last_emit_ms
            if self.entry.emission.last_emit_ms is not None
            else self.entry.owned_since_ms
        )
        return None if since is None else self.now_ms - since

    @metric(GAUGE, "ms")
    def time_to_retention_loss_ms(self) -> int | None:
        """Time until the oldest unfinished record may be past retention.

        At the tip it is the whole retention period. A negative value means that the record may be lost.
        """
        left_ms = time_to_loss_ms(self.entry.snapshot_state, self.retention_ms, self.now_ms)
        if left_ms is None or self.retention_ms is None or self.unfinished is None:
            return left_ms
        return min(left_ms, self.unfinished.oldest_ms + self.retention_ms - self.now_ms)

    @metric(FLAG)
    def alarm(self) -> bool:
        """Whether the shard has unread records and wrote none for `flink.alarm.interval`."""
        return self.has_alarm


def millis_behind_latest(entry: ShardEntry, now_ms: int) -> int:
    """Return how far the reads of a shard are behind its tip (ms), or -1 before the first read.

    The time since the last read is added while the shard is behind its tip, is not read, or its calls fail. Otherwise the value of a shard
    that cannot be read would never change, and hide an outage.
    """
    last = entry.metrics.millis_behind_latest
    if last < 0 or entry.reading.last_read_ms is None:
        return last
    age = max(0, now_ms - entry.reading.last_read_ms)
    is_cut_off = age > STALE_READ_MS or entry.metrics.last_failure is not None
    return last + age if (last > 0 or entry.reading.queue.records > 0 or is_cut_off) and entry.is_open else last


def lag_ms(entry: ShardEntry, unfinished: UnfinishedShard | None, now_ms: int) -> int | None:
    """Return the age of the oldest unfinished record of a shard (ms). Metrics, alarms, the status line and progress lines use this number.

    A record is unfinished if it was not read, was read and not written, or was written and not finished by the sink. The result is 0 if
    there is none, and None if the lag is not known because the shard was not read yet.

    `unfinished`: the unfinished records of the shard that the sink reports.
    """
    ages, unwritten_ms, reads = [], entry.oldest_unwritten_ms, millis_behind_latest(entry, now_ms)
    if unfinished is not None:
        ages.append(now_ms - unfinished.oldest_ms)
    if unwritten_ms is not None:
        ages.append(now_ms - unwritten_ms)
    if reads >= 0:
        # The last batch of a shard that has ended may have said that later records follow, in its children.
        ages.append(0 if entry.has_ended else reads)
    return max(0, *ages) if ages else None


def largest_lag_ms(entries: Iterable[ShardEntry], unfinished: Unfinished | None, now_ms: int) -> int | None:
    """Return the largest `lag_ms` of these shards, or None if none is known. `unfinished`: the unfinished records of the sink."""
    of_shards = {} if unfinished is None else unfinished.shards
    lags = (lag_ms(entry, of_shards.get(entry.key), now_ms) for entry in entries)
    return max((lag for lag in lags if lag is not None), default=None)


def unread_ms(entry: ShardEntry, now_ms: int) -> int | None:
    """Return for how long no read of a shard has returned (ms), or None in these cases:

    - A read returned lately, and no call has failed since.
    - The shard needs no read now.
    - The shard has queued records, so its next read may wait for something in this job, such as memory or alignment.
    """
    if not entry.is_reading or entry.reading.queue or entry.reading.needs_no_more:
        return None
    since_ms = entry.owned_since_ms if entry.reading.last_read_ms is None else entry.reading.last_read_ms
    age = 0 if since_ms is None else max(0, now_ms - since_ms)
    return age if age > STALE_READ_MS or entry.metrics.last_failure is not None else None


def _of_shard_metrics() -> tuple[Metric[ShardView], ...]:
    """Return the counters and gauges that the fields of `ShardMetrics` declare, as metrics that read a `ShardView`."""
    return tuple(
        Metric(
            each.name,
            MetricType(each.metadata["type"]),
            each.metadata["unit"],
            each.metadata["description"],
            lambda view, name=each.name: getattr(view.entry.metrics, name),  # type: ignore[misc]
            each.metadata.get("shown", ""),
            each.metadata.get("loss", ""),
        )
        for each in fields(ShardMetrics)
        if each.metadata
    )


SHARD_METRICS: tuple[Metric[ShardView], ...] = (*metrics_of(ShardView), *_of_shard_metrics())
"""All metrics of a shard. The reference page is generated from them, and exporters export them."""

SHOWN_COUNTERS: dict[str, str] = {each.name: each.shown for each in SHARD_METRICS if each.shown}
"""The titles under which the dashboard and `lag --watch` show counters, by the counter's name."""
