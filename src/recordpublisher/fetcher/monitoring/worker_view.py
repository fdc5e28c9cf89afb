"""The metrics of one worker and of its shards (A1), and the figures of a worker that a progress line shows."""

from dataclasses import fields
from typing import Any

import msgspec

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.histogram import HistogramValue
from recordpublisher.publishers.shard_metrics import SUMMED_COUNTERS, ShardMetrics

from ..checkpoints.checkpoint_schedule import CheckpointAge
from ..checkpoints.staged_commits import CommitCounts
from ..leases.group_counters import GroupCounters
from ..metric_types import COUNTER, GAUGE, HISTOGRAM, TEXT, Metric, metric, metrics_of
from ..pipeline.dead_letters import DeadLetterHandler
from ..pipeline.emitter import Emitter
from ..pipeline.process_suspension import SuspensionDetector
from ..pipeline.reading import ReadIntake
from ..shards.shard_entry import ShardEntry
from ..shards.shard_table import ShardTable
from ..sink import Unfinished
from ..watermarks import Alignment, WatermarkTracker
from .alarm_monitor import AlarmMonitor, RetentionPeriods
from .shard_view import SHARD_METRICS, ShardView, lag_ms, largest_lag_ms, unread_ms
from .workers_wanted import WorkersWanted


class WorkerView(msgspec.Struct, frozen=True):
    """The parts of a fetcher from which the metrics of its worker are computed. Without a group, the metrics of the group are 0 or null."""

    table: ShardTable
    tracker: WatermarkTracker
    alignment: Alignment
    emitter: Emitter
    intake: ReadIntake
    alarm_monitor: AlarmMonitor
    retention: RetentionPeriods
    suspension: SuspensionDetector
    checkpoints: CheckpointAge
    leases: GroupCounters
    commits: CommitCounts | None
    wanted: WorkersWanted
    dead_letter_handler: DeadLetterHandler

    @property
    def records_read(self) -> int:
        """Records that were given to the sink, and records that could not be deserialized."""
        left_out = self.table.total("skipped_records") + self.table.total("dead_letters")
        return self.emitter.records + left_out - self.dead_letter_handler.rejected

    @property
    def entries(self) -> list[ShardEntry]:
        """Every shard that the worker owns."""
        return list(self.table)

    def collect(self, clock: Clock, unfinished: Unfinished | None) -> dict[str, Any]:
        """Return all metrics as `{"worker": {...}, "shards": {"stream/shard-id": {...}}}`, without a call to the service."""
        now_ms, now, alarms = clock.now_ms(), clock.monotonic(), self.alarm_monitor.active_alarms
        shards: dict[str, Any] = {}
        of_shards = {} if unfinished is None else unfinished.shards
        for entry in self.entries:
            retention_ms = self.retention.of(entry.shard.stream)
            why_blocked = self.intake.why_blocked(entry)
            view = ShardView(
                entry, now_ms, now, retention_ms, entry.key in alarms, why_blocked, of_shards.get(entry.key)
            )
            shards[entry.key] = {metric.name: metric.read(view) for metric in SHARD_METRICS}
        return {"worker": {metric.name: metric.read(self) for metric in WORKER_METRICS}, "shards": shards}

    def undecided_commit(self) -> str | None:
        """Return the name and place of the positions whose write got no answer, or None if every write was answered."""
        return None if self.commits is None else self.commits.undecided

    def observe_load(self, now_ms: int, unfinished: Unfinished | None) -> None:
        """Register how far the shards of this process are behind, and how many records it has written, for `workers_wanted` of a group."""
        if self.tracker.worker is None:
            return
        of_shards = {} if unfinished is None else unfinished.shards
        lags_ms = {entry.key: lag_ms(entry, of_shards.get(entry.key), now_ms) for entry in self.table if entry.is_open}
        self.wanted.observe(lags_ms, self.emitter.records)

    @metric(GAUGE, "epoch ms")
    def local_watermark(self) -> int | None:
        """The last watermark that the sink received."""
        return self.emitter.local_watermark.value

    @metric(GAUGE, "epoch ms")
    def global_watermark(self) -> int | None:
        """The last known global watermark. The next record of each shard counts, so it may be above the `watermark` of a shard."""
        return self.alignment.global_watermark

    @metric(TEXT)
    def blocking_shard(self) -> str | None:
        """The shard with this worker's lowest watermark, as `stream/shard-id`. The other shards wait for it."""
        return self.alignment.blocking_shard

    @metric(GAUGE, "ms")
    def watermark_stalled_ms(self) -> int:
        """How long the global watermark has not risen while records were written or held back by alignment."""
        return self.alarm_monitor.watermark_stalled_ms

    @metric(COUNTER, "records")
    def records(self) -> int:
        """Records written to the sink."""
        return self.emitter.records

    @metric(HISTOGRAM, "ms")
    def read_duration_ms(self) -> HistogramValue:
        """How long the successful GetRecords calls took, over all shards. Fan-out makes no such calls."""
        return self.table.worker_read_durations.value()

    @metric(HISTOGRAM, "ms")
    def write_delay_ms(self) -> HistogramValue:
        """Time from a record's arrival in the stream until it was written to the sink. Measured for the last record of each batch."""
        return self.emitter.write_delays.value()

    @metric(GAUGE, "ms")
    def checkpoint_age_ms(self) -> int | None:
        """Time since the last checkpoint was stored."""
        return self.checkpoints.age_ms

    @metric(GAUGE, "ms")
    def checkpoint_running_ms(self) -> int:
        """Time since the beginning of the oldest checkpoint that is not stored yet; 0 if there is none."""
        return self.checkpoints.running_ms

    @metric(HISTOGRAM, "ms")
    def checkpoint_duration_ms(self) -> HistogramValue:
        """How long checkpoints took until they were stored."""
        return self.checkpoints.durations.value()

    @metric(GAUGE, "files")
    def committed_files(self) -> int | None:
        """Files of the last commit that had records (0 for rows of a database); null if the sink does not commit."""
        return None if self.commits is None else self.commits.files

    @metric(GAUGE, "bytes")
    def committed_bytes(self) -> int | None:
        """Bytes of the files of the last commit that had records; null if the sink does not commit."""
        return None if self.commits is None else self.commits.size

    @metric(GAUGE, "ms")
    def committed_age_ms(self) -> int | None:
        """Time since the last commit that had records was stored; null if this process had none."""
        return None if self.commits is None else self.commits.age_ms

    @metric(GAUGE, "records")
    def uncommitted_records(self) -> int | None:
        """Records written to a sink that commits, and not committed yet."""
        return None if self.commits is None else max(0, self.emitter.records - self.commits.records)

    @metric(GAUGE, "ms")
    def loop_lag_ms(self) -> int:
        """How late the last regular timer of the event loop was."""
        return self.suspension.lag_ms

    @metric(GAUGE, "bytes")
    def budget_used_bytes(self) -> int:
        """Bytes of `flink.worker.queue.bytes` that queued records hold in memory, or that are reserved for reads."""
        return self.intake.used_bytes

    @metric(GAUGE, "shards")
    def shards(self) -> int:
        """Shards that the worker owns, including ended ones."""
        return len(self.entries)

    @metric(GAUGE, "shards")
    def open_shards(self) -> int:
        """Shards that are being read, or were read to their end and have queued records."""
        return sum(entry.is_open for entry in self.entries)

    @metric(GAUGE, "shards")
    def idle_shards(self) -> int:
        """Open shards that had no records for the idle interval, so that watermarks do not wait for them."""
        return sum(entry.is_open and entry.reading.is_idle for entry in self.entries)

    @metric(GAUGE, "shards")
    def held_shards(self) -> int:
        """Shards held back by alignment, because their next record is above the highest watermark that may be written now."""
        return sum(entry.status.is_held for entry in self.entries)

    @metric(GAUGE, "shards")
    def excluded_shards(self) -> int:
        """Shards so far behind that watermarks do not wait for them (`flink.watermark.alignment.max.lag`)."""
        return sum(entry.status.is_straggler for entry in self.entries)

    @metric(GAUGE, "ms")
    def alignment_lag_ms(self) -> int | None:
        """How far the highest watermark of a shard is above the global watermark.

        If it is much more than the lookahead, one shard blocks the others.
        """
        return self.alignment.lag_ms

    @metric(GAUGE, "alarms")
    def alarms(self) -> int:
        """Active alarms, including those for shards of other workers."""
        return len(self.alarm_monitor.active_alarms)

    @metric(TEXT)
    def worker(self) -> str | None:
        """The name of this process in its group; null without a group."""
        return self.tracker.worker

    @metric(COUNTER, "shards")
    def leases_taken(self) -> int:
        """Shards that this process acquired in its group."""
        return self.leases.taken

    @metric(COUNTER, "shards")
    def leases_given(self) -> int:
        """Shards that this process released to other processes of its group before the shards ended."""
        return self.leases.given

    @metric(COUNTER, "workers")
    def workers_sealed(self) -> int:
        """Workers of the group that this process declared dead (sealed), because they sent no heartbeat for their lease duration."""
        return self.leases.sealed

    @metric(COUNTER, "times")
    def worker_replaced(self) -> int:
        """How often other processes of the group have replaced the worker of this process."""
        return self.leases.replaced

    @metric(COUNTER, "records")
    def in_flight_when_replaced(self) -> int:
        """Records being written, and running calls of handlers, when other processes of the group replaced this process's worker.

        Other processes may write these records too.
        """
        return self.leases.in_flight

    @metric(GAUGE, "shards")
    def withheld_shards(self) -> int:
        """Shards that another worker of the group should have released and has not, although it sends heartbeats.

        Exactly one process counts each of these shards.
        """
        return sum(map(len, self.leases.withheld.values()))

    @metric(GAUGE, "shards")
    def unowned_shards(self) -> int:
        """Shards that no process of the group read, although they could be read, when this process last read the group's store.

        A shard whose worker has sent no heartbeat for half of its lease counts too.
        """
        return self.leases.unowned

    @metric(GAUGE, "ms")
    def unowned_ms(self) -> int:
        """The longest time for which one of the group's unowned shards (`unownedShards`) has had no reader."""
        return round(self.leases.unowned_seconds * 1000)

    @metric(GAUGE, "workers")
    def workers_wanted(self) -> float | None:
        """The number of workers that the load of this process needs, which may be a fraction; null without a group.

        The sum over all processes of the group is the number of workers that the group should have.
        """
        return None if self.tracker.worker is None else round(self.wanted.part, 2)


def _sums() -> tuple[Metric[WorkerView], ...]:
    """Return the counters of shards that are summed over all shards of the worker (`SUMMED_COUNTERS`)."""
    return tuple(
        Metric(
            each.name,
            COUNTER,
            each.metadata["unit"],
            f"{each.metadata['description']}. Counted over all shards since the worker's start, including those that it no longer owns",
            lambda view, name=each.name: view.table.total(name),  # type: ignore[misc]
        )
        for each in fields(ShardMetrics)
        if each.name in SUMMED_COUNTERS
    )


WORKER_METRICS: tuple[Metric[WorkerView], ...] = (*metrics_of(WorkerView), *_sums())
"""All metrics of a worker. The reference page is generated from them, and exporters export them."""


# WorkerProgress has the few figures of a worker that a progress line shows. They cost a fraction of what all metrics cost (A1).


class WorkerProgress(msgspec.Struct, frozen=True, rename="camel"):
    """The figures of one worker for a progress line.

    - `process`: the number of the process on its machine.
    - `records`: number of records that were read: those that the sink received, `skipped` and `dead_letters`.
    - `open_shards`, `idle_shards`, `held_shards`: number of shards that are read, that are quiet, and that wait for other shards
      (alignment in event time).
    - `lag_ms`: age of the oldest unfinished record (ms), of the shard that is furthest behind. None if it is not known. One record that is
      retried for minutes makes it large, although all others are finished. How far the reading is behind is `millisBehindLatest` in the
      metrics.
    - `unfinished`: number of records that the sink received and has not finished. None if it is not known.
    - `unread_ms`: the longest time for which a shard that should be read was not read (ms). None if every shard is read.
    - `read_failure`: the error of that shard's last call. None if the call has not returned.
    - `left`: number of records that the sink has dropped, and that the next start reads again.
    """

    process: int
    records: int
    open_shards: int
    idle_shards: int
    held_shards: int
    skipped: int
    dead_letters: int
    lag_ms: int | None
    unfinished: int | None = None
    unread_ms: int | None = None
    read_failure: str | None = None
    left: int = 0


def progress_of(view: WorkerView, unfinished: Unfinished | None, now_ms: int) -> WorkerProgress:
    """Return the figures of a worker for a progress line."""
    open_shards = idle = held = 0
    longest_ms, failure = -1, None
    for entry in view.table:
        if entry.is_open:
            open_shards += 1
            idle += entry.reading.is_idle
        held += entry.status.is_held
        age_ms = unread_ms(entry, now_ms)
        if age_ms is not None and age_ms > longest_ms:
            longest_ms, failure = age_ms, entry.metrics.last_failure
    return WorkerProgress(
        0,
        view.records_read,
        open_shards,
        idle,
        held,
        view.table.total("skipped_records"),
        view.table.total("dead_letters"),
        largest_lag_ms(view.table, unfinished, now_ms),
        None if unfinished is None else unfinished.records,
        None if longest_ms < 0 else longest_ms,
        None if failure is None else str(failure),
        0 if unfinished is None else unfinished.left,
    )
