"""All metrics: name, type, unit, description and source (A1). The reference page is generated from these two tables."""

from ..metric_types import Metric, MetricType
from .lease_metrics import LEASE_METRICS
from .metric_views import ShardView, SubtaskView


def _counted(name: str, unit: str, description: str) -> Metric[ShardView]:
    """A counter of `ShardMetrics`, which publisher and consumer of a shard increment."""
    attribute = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return Metric(name, COUNTER, unit, description, lambda view: getattr(view.entry.metrics, attribute))


COUNTER, GAUGE, FLAG, TEXT = MetricType

SUBTASK_METRICS: tuple[Metric[SubtaskView], ...] = (
    Metric(
        "localWatermark",
        GAUGE,
        "epoch ms",
        "the last watermark that the sink received",
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
        "the shard with this subtask's lowest watermark, for which the others wait, as `stream/shard-id`",
        lambda view: view.alignment.blocking_shard,
    ),
    Metric(
        "blockingSubtask",
        GAUGE,
        "subtask",
        "the subtask with the lowest watermark, for which the others wait, if the tracker knows it",
        lambda view: view.tracker.lowest_subtask(),
    ),
    Metric(
        "worker",
        TEXT,
        "",
        "the name of this process in its group (`flink.shard.assignment=ELASTIC`); null: without a group",
        lambda view: view.tracker.worker,
    ),
    Metric(
        "trackerResponseAgeMs",
        GAUGE,
        "ms",
        "since the tracker's last response; 0 inside one process",
        lambda view: view.tracker.response_age_ms,
    ),
    Metric(
        "watermarkStalledMs",
        GAUGE,
        "ms",
        "for how long the global watermark did not rise while records were written or held back",
        lambda view: view.alarm_monitor.watermark_stalled_ms,
    ),
    Metric(
        "loopLagMs",
        GAUGE,
        "ms",
        "how late the last tick of the event loop was: a busy loop, a starved or a suspended process",
        lambda view: view.suspension.lag_ms,
    ),
    Metric("records", COUNTER, "records", "written to the sink", lambda view: view.emitter.records),
    Metric(
        "checkpointAgeMs",
        GAUGE,
        "ms",
        "since the last checkpoint was stored",
        lambda view: view.checkpoints.age_ms,
    ),
    Metric(
        "checkpointRunningMs",
        GAUGE,
        "ms",
        "since the oldest checkpoint began that is not stored, 0 while there is none; it grows while the store or the sink does not answer",
        lambda view: view.checkpoints.running_ms,
    ),
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
        lambda view: sum(entry.is_open and entry.reading.is_idle for entry in view.entries),
    ),
    Metric(
        "heldShards",
        GAUGE,
        "shards",
        "held back by alignment: the next record is above the emit limit",
        lambda view: sum(entry.status.is_held for entry in view.entries),
    ),
    Metric(
        "excludedShards",
        GAUGE,
        "shards",
        "so far behind that watermarks do not wait for them (`flink.watermark.alignment.max.lag`)",
        lambda view: sum(entry.status.is_excluded for entry in view.entries),
    ),
    Metric(
        "alignmentLagMs",
        GAUGE,
        "ms",
        "how far the shard with the highest watermark is above the global one; much more than the lookahead: one shard blocks the others",
        lambda view: view.alignment.lag_ms,
    ),
    Metric(
        "lateAfterIdle",
        COUNTER,
        "records",
        "below the global watermark only because their shard was idle or excluded",
        lambda view: sum(entry.emission.late_after_idle for entry in view.entries),
    ),
    Metric(
        "lateAfterTakeover",
        COUNTER,
        "records",
        "ELASTIC: below the global watermark because a worker was sealed: what it had not stored is read again, and written",
        lambda view: sum(entry.emission.late_after_takeover for entry in view.entries),
    ),
    Metric(
        "alarms",
        GAUGE,
        "alarms",
        "active, including those for shards of other subtasks",
        lambda view: len(view.alarm_monitor.active_alarms),
    ),
    *LEASE_METRICS,
)

SHARD_METRICS: tuple[Metric[ShardView], ...] = (
    Metric(
        "millisBehindLatest",
        GAUGE,
        "ms",
        "behind the shard's tip at the last read, growing since then if records were left or the shard is not read; "
        "-1 before the first read",
        lambda view: view.millis_behind_latest,
    ),
    _counted("numberOfAggregatedRecords", "records", "Kinesis records read"),
    _counted("numberOfDeaggregatedRecords", "records", "user records read, after de-aggregation"),
    _counted("bytesRead", "bytes", "payload read"),
    Metric(
        "bytesPerRead",
        GAUGE,
        "bytes",
        "payload of the last read",
        lambda view: view.entry.metrics.bytes_per_read,
    ),
    _counted("reads", "reads", "successful reads, including empty ones"),
    _counted("retries", "calls", "failed and retried"),
    _counted("throttles", "calls", "throttled"),
    _counted("resubscribes", "subscriptions", "opened after the first (fan-out)"),
    _counted("subscriptionsTakenOver", "subscriptions", "taken over by another caller"),
    _counted("subscriptionsRefused", "calls", "refused: consumer in use"),
    _counted("iteratorRefreshes", "iterators", "replaced because of age or expiry (polling)"),
    _counted("foreignSubRecords", "records", "sub-records dropped because their hash key belongs to another shard"),
    _counted(
        "uncheckedSubRecords", "records", "such sub-records kept, since the stream's record distribution is not known"
    ),
    _counted("retentionGaps", "gaps", "reading continued after records that passed the stream's retention unread"),
    _counted("retentionNotChecked", "times", "it could not be checked whether records passed the retention unread"),
    _counted(
        "skippedRecords",
        "records",
        "skipped: no valid value or event time, or rejected by the sink (`flink.deserializer.error=SKIP`)",
    ),
    _counted(
        "deadLetters", "records", "the same, written to the dead-letter sink (`flink.deserializer.error=DEAD_LETTER`)"
    ),
    Metric(
        "unacknowledged",
        GAUGE,
        "records",
        "received from a queue, and neither acknowledged nor given up; 0 where the source has positions",
        lambda view: view.entry.metrics.unacknowledged,
    ),
    _counted("failedAcknowledgements", "records", "not acknowledged, or not kept from others: they come again"),
    _counted("duplicates", "records", "received again from a queue, of those that are remembered"),
    _counted("futureEventTimes", "records", "with an event time too far ahead of their arrival to move the watermark"),
    Metric(
        "subscribed",
        GAUGE,
        "0 or 1",
        "1 while a fan-out subscription is open",
        lambda view: view.entry.metrics.subscribed,
    ),
    Metric("records", COUNTER, "records", "written to the sink", lambda view: view.entry.emission.records),
    Metric("bytes", COUNTER, "bytes", "payload written to the sink", lambda view: view.entry.emission.payload_bytes),
    Metric(
        "stage",
        TEXT,
        "",
        "WAITING for its parents, READING, DRAINING its queue after its end, ENDED",
        lambda view: view.entry.stage.name,
    ),
    Metric(
        "parents",
        TEXT,
        "",
        "the shards that were split or merged into it, separated by a space; null: none",
        lambda view: " ".join(view.entry.shard.parents) or None,
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
    Metric(
        "queuedRecords", GAUGE, "records", "read and not yet written", lambda view: view.entry.reading.queue.records
    ),
    Metric("queuedBytes", GAUGE, "bytes", "the same, as held in memory", lambda view: view.entry.reading.queue.bytes),
    Metric(
        "idle",
        FLAG,
        "",
        "open, and observed silent for the idle interval",
        lambda view: view.entry.reading.is_idle and view.entry.is_open,
    ),
    Metric(
        "silentMs",
        GAUGE,
        "ms",
        "for how long the shard was observed silent",
        lambda view: view.entry.reading.idleness.observed_ms,
    ),
    Metric(
        "excluded",
        FLAG,
        "",
        "so far behind that watermarks do not wait for it",
        lambda view: view.entry.status.is_excluded,
    ),
    Metric(
        "lateAfterIdle",
        COUNTER,
        "records",
        "below the global watermark when written, although not late in their shard",
        lambda view: view.entry.emission.late_after_idle,
    ),
    Metric(
        "lateAfterTakeover",
        COUNTER,
        "records",
        "ELASTIC: the same, of a shard whose worker was sealed before it had stored its position",
        lambda view: view.entry.emission.late_after_takeover,
    ),
    Metric("held", FLAG, "", "held back by alignment now", lambda view: view.entry.status.is_held),
    Metric(
        "readBlockedBy",
        TEXT,
        "",
        "why its next read waits: `PARENTS`, `ALIGNMENT`, `FULL_QUEUE` or `MEMORY` (of the subtask); null: it does not wait",
        lambda view: None if view.blocked is None else view.blocked.name,
    ),
    Metric("heldMs", COUNTER, "ms", "held back by alignment so far", lambda view: view.held_ms),
    Metric(
        "lastEmitAgeMs",
        GAUGE,
        "ms",
        "since this shard's last record was written; before the first one, since the subtask owns the shard",
        lambda view: view.last_emit_age_ms,
    ),
    Metric(
        "timeToRetentionLossMs",
        GAUGE,
        "ms",
        "until a record that was not written may be past retention; negative: it may be lost",
        lambda view: view.time_to_retention_loss_ms,
    ),
    Metric("alarm", FLAG, "", "has unread records and wrote none for the alarm interval", lambda view: view.has_alarm),
)
