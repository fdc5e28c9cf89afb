"""Every metric, once: name, type, unit, what it says and where it comes from (A1). The reference page is made from these two tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from recordpublisher.publishers.clock import Clock

from .metric_views import ShardView, SubtaskView

V = TypeVar("V")


class MetricType(StrEnum):
    """How values of a metric behave."""

    COUNTER = "counter"
    GAUGE = "gauge"
    FLAG = "boolean"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Metric(Generic[V]):
    """One metric of a scope (`V`: a subtask or a shard)."""

    name: str
    type: MetricType
    unit: str
    sentence: str
    of: Callable[[V], Any]


def _counted(name: str, unit: str, sentence: str) -> Metric[ShardView]:
    """A counter of `ShardMetrics`: counted where a shard is read and stamped."""
    attribute = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return Metric(name, COUNTER, unit, sentence, lambda view: getattr(view.entry.metrics, attribute))


COUNTER, GAUGE, FLAG, TEXT = MetricType

OF_SUBTASK: tuple[Metric[SubtaskView], ...] = (
    Metric(
        "localWatermark",
        GAUGE,
        "epoch ms",
        "the last watermark that the sink was told",
        lambda view: view.emitter.local_watermark.value,
    ),
    Metric(
        "globalWatermark",
        GAUGE,
        "epoch ms",
        "the last known global watermark",
        lambda view: view.alignment.global_watermark,
    ),
    Metric(
        "blockingShard",
        TEXT,
        "",
        "the shard that holds this subtask's minimum, as `stream/shard-id`",
        lambda view: view.alignment.holder,
    ),
    Metric(
        "blockingSubtask",
        GAUGE,
        "subtask",
        "the subtask that holds the global minimum, where the tracker says so",
        lambda view: view.tracker.lowest_subtask(),
    ),
    Metric(
        "trackerAgeMs",
        GAUGE,
        "ms",
        "since the tracker last answered; 0 inside one process",
        lambda view: view.tracker.response_age_ms,
    ),
    Metric(
        "watermarkStalledMs",
        GAUGE,
        "ms",
        "how long the global watermark has stood still while records went on or were held",
        lambda view: view.monitor.stands_ms,
    ),
    Metric(
        "loopLagMs",
        GAUGE,
        "ms",
        "how late the last beat of the loop came: a busy loop, a starved or a suspended process",
        lambda view: view.pulse.lag_ms,
    ),
    Metric("records", COUNTER, "records", "written to the sink", lambda view: view.emitter.records),
    Metric(
        "budgetUsedBytes", GAUGE, "bytes", "queued or reserved, as held in memory", lambda view: view.intake.used_bytes
    ),
    Metric("shards", GAUGE, "shards", "owned, ended ones included", lambda view: len(view.entries)),
    Metric(
        "openShards",
        GAUGE,
        "shards",
        "being read, or read to their end with records still queued",
        lambda view: sum(entry.is_open for entry in view.entries),
    ),
    Metric(
        "idleShards",
        GAUGE,
        "shards",
        "open and idle",
        lambda view: sum(entry.is_open and entry.idle for entry in view.entries),
    ),
    Metric(
        "heldShards",
        GAUGE,
        "shards",
        "whose next record lies above the ceiling of alignment",
        lambda view: sum(entry.held_since is not None for entry in view.entries),
    ),
    Metric(
        "excludedShards",
        GAUGE,
        "shards",
        "so far behind that nobody waits for them (`flink.watermark.alignment.max.lag`)",
        lambda view: sum(entry.left_behind for entry in view.entries),
    ),
    Metric(
        "alignmentLagMs",
        GAUGE,
        "ms",
        "how far the furthest shard stands above the global watermark; much more than the lookahead: one shard holds the others",
        lambda view: view.alignment.lag_ms,
    ),
    Metric(
        "lateAfterIdle",
        COUNTER,
        "records",
        "below the global watermark only because their shard was idle or left out",
        lambda view: sum(entry.late_after_idle for entry in view.entries),
    ),
    Metric(
        "alarms",
        GAUGE,
        "alarms",
        "raised and not over, those for shards of others included",
        lambda view: len(view.monitor.board),
    ),
)

OF_SHARD: tuple[Metric[ShardView], ...] = (
    Metric(
        "millisBehindLatest",
        GAUGE,
        "ms",
        "behind the shard's tip at the last answered read, and growing since when something was left or nobody asks; "
        "-1 before the first",
        lambda view: view.millis_behind_latest,
    ),
    _counted("numberOfAggregatedRecords", "records", "Kinesis records read"),
    _counted("numberOfDeaggregatedRecords", "records", "user records read, after de-aggregation"),
    _counted("bytesRead", "bytes", "payload read"),
    Metric(
        "bytesPerRead",
        GAUGE,
        "bytes",
        "payload of the last answered read",
        lambda view: view.entry.metrics.bytes_per_read,
    ),
    _counted("reads", "reads", "answered reads, empty ones included"),
    _counted("retries", "calls", "failed and tried again"),
    _counted("throttles", "calls", "refused by a limit"),
    _counted("resubscribes", "subscriptions", "opened after the first (fan-out)"),
    _counted("iteratorRefreshes", "iterators", "replaced because of age or expiry (polling)"),
    _counted("foreignSubRecords", "records", "sub-records dropped because their hash key belongs to another shard"),
    _counted(
        "skippedRecords",
        "records",
        "without a readable value or time, or refused by the sink, skipped (`flink.deserializer.error=SKIP`)",
    ),
    _counted(
        "deadLetters", "records", "the same, given to the dead-letter sink (`flink.deserializer.error=DEAD_LETTER`)"
    ),
    _counted(
        "futureEventTimes", "records", "whose event time lay too far ahead of their arrival to move the watermark"
    ),
    Metric(
        "subscribed",
        GAUGE,
        "0 or 1",
        "1 while a fan-out subscription is open",
        lambda view: view.entry.metrics.subscribed,
    ),
    Metric("records", COUNTER, "records", "written to the sink", lambda view: view.entry.records),
    Metric("bytes", COUNTER, "bytes", "payload written to the sink", lambda view: view.entry.payload_bytes),
    Metric(
        "stage",
        TEXT,
        "",
        "WAITING for its parents, READING, DRAINING its queue after its end, ENDED",
        lambda view: view.entry.stage.name,
    ),
    Metric(
        "watermark",
        GAUGE,
        "epoch ms",
        "the shard watermark after the last record written",
        lambda view: view.entry.state.watermark,
    ),
    Metric(
        "nextWatermark",
        GAUGE,
        "epoch ms",
        "the watermark of the next queued record",
        lambda view: view.entry.next_watermark,
    ),
    Metric("queuedRecords", GAUGE, "records", "read and not yet written", lambda view: view.entry.queued_records),
    Metric("queuedBytes", GAUGE, "bytes", "the same, as held in memory", lambda view: view.entry.queued_bytes),
    Metric(
        "idle",
        FLAG,
        "",
        "open, and silent for the idle interval by evidence",
        lambda view: view.entry.idle and view.entry.is_open,
    ),
    Metric("silentMs", GAUGE, "ms", "evidence of silence so far", lambda view: view.entry.silence.observed_ms),
    Metric("excluded", FLAG, "", "so far behind that nobody waits for it", lambda view: view.entry.left_behind),
    Metric(
        "lateAfterIdle",
        COUNTER,
        "records",
        "below the global watermark when they were written, and not late in their shard",
        lambda view: view.entry.late_after_idle,
    ),
    Metric("held", FLAG, "", "held back by alignment now", lambda view: view.entry.held_since is not None),
    Metric("heldMs", COUNTER, "ms", "held back by alignment so far", lambda view: view.held_ms),
    Metric(
        "lastEmitAgeMs",
        GAUGE,
        "ms",
        "since the last write of this shard's records; before the first, since the subtask has the shard",
        lambda view: view.last_emit_age_ms,
    ),
    Metric(
        "timeToRetentionLossMs",
        GAUGE,
        "ms",
        "left before a record that was not written may be past retention; negative: it may be lost",
        lambda view: view.time_to_retention_loss_ms,
    ),
    Metric("alarm", FLAG, "", "written to and not read for the alarm interval", lambda view: view.has_alarm),
)


def shown(table: tuple[Metric[V], ...], view: V) -> dict[str, Any]:
    """Every metric of one scope, as plain values."""
    return {metric.name: metric.of(view) for metric in table}


def metrics_of(subtask: SubtaskView, clock: Clock) -> dict[str, Any]:
    """`{"subtask": {...}, "shards": {"stream/shard-id": {...}}}`; costs no call."""
    now_ms, now, board = clock.now_ms(), clock.monotonic(), subtask.monitor.board
    retention = subtask.monitor.retention
    views = [
        ShardView(entry, now_ms, now, retention.of(entry.shard.stream), entry.key in board) for entry in subtask.entries
    ]
    return {
        "subtask": shown(OF_SUBTASK, subtask),
        "shards": {view.entry.key: shown(OF_SHARD, view) for view in views},
    }
