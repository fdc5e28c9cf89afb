"""The driver's part of a query: `BatchPlanner` loads claims, calls `plan_batch` and `next_step`, and keeps what the progress shows.

- `FailedReadBackoff` detects outages, and other jobs that use the same fan-out consumer.
- `QueryProgress` has the figures of `lastProgress`.
- `QueryWarnings` has the warnings about a running query.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from recordpublisher.plugins.stores.spark_read_claims import ReadClaimStore
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.properties.job_properties import LOOKAHEAD
from recordpublisher.publishers.properties.times_and_sizes import iso_time
from recordpublisher.publishers.safe_text import few_of
from recordpublisher.publishers.shards import Shard

from ..options.spark_options import METADATA_ROOT, SparkOptions
from ..outages import OutageWatch
from .batch_plan import BatchPlan, Decision, Facts, PlanInputs, Step, Wait, Watch, next_step, plan_batch
from .claims import BatchClaims, ShardRead, StoreVisibilityCheck, claims_elsewhere_error, load_batch_claims
from .kinesis_service import KinesisService
from .offset import EMIT_NOTHING, BatchOffset, ShardOffset, random_id
from .offset_alignment import AlignmentSettings, is_held
from .query_start import (
    QueryRun,
    RetentionLeft,
    begin_run,
    dropped_streams,
    initial_offset,
    least_retention_left,
    list_shards_now,
)
from .task_plans import MAX_DOUBLINGS, TaskPlan, count_tasks, count_tasks_of_first_batch, task_plans

if TYPE_CHECKING:
    from recordpublisher.publishers.fanout.publisher import SubscriptionPreemptionDetector

LOG = logging.getLogger("recordpublisher.spark")


@dataclass(slots=True)
class BatchPlanner:
    """Owns the values that the driver of a query keeps between batches. Values that must survive a restart are in the offsets.

    Its methods wait only for responses of services. A call that failed may be repeated.
    """

    options: SparkOptions
    service: KinesisService
    store: ReadClaimStore
    clock: Clock = field(default_factory=SystemClock)
    is_available_now: bool = False
    """Whether this is a run with Trigger.AvailableNow. It ends at the tips (newest records) that the shards have at its first plan."""
    outages: OutageWatch = field(init=False)
    _last_plan: str = ""
    _first_plan: str = ""
    """Id of the first plan that this process has made. The tasks of this plan poll, even with fan-out."""
    _run: QueryRun | None = None
    _finished: set[str] = field(default_factory=set)
    _remembered: tuple[str, int, Wait | Watch] | None = None
    """The id of the last plan, the time when the step after it was decided (epoch ms), and the step."""
    _just_loaded: BatchClaims | None = None
    """The claims that were loaded before a first look (one read of every shard).

    They are still valid after it, because it takes a second.
    """
    _progress: QueryProgress | None = None
    _shown: Mapping[str, Any] | None = None
    """The figures (how far the query is) that Spark received last."""
    _noted_plan: str = ""
    """Id of the plan whose batch is the last one in `_progress`, if no batch follows it now."""
    _listed_at_batch: int = 0
    _reads: FailedReadBackoff = field(init=False)
    _store_check: StoreVisibilityCheck = field(init=False)
    _warnings: QueryWarnings = field(init=False)
    _alignment: AlignmentSettings = field(init=False)

    def __post_init__(self) -> None:
        self.outages = OutageWatch(self.options.max_outage_ms, self.clock)
        self._reads = FailedReadBackoff(self.outages, self.clock, self.options.consumer)
        self._store_check = StoreVisibilityCheck(self.store)
        self._warnings = QueryWarnings(self.options)
        self._alignment = AlignmentSettings.of(self.options.properties)

    def prepare_available_now(self) -> None:
        """Make this a run with Trigger.AvailableNow. It ends at the tips (newest records) that the shards have at the next plan."""
        self.is_available_now, self._run, self._remembered = True, None, None

    def initial_offset(self, began_ms: int) -> BatchOffset:
        """Return the offset at which a new query starts. The query began at `began_ms` (epoch ms, by the driver's clock).

        Raises: ConfigurationError if the place for claims cannot hold them; the errors of `query_start.initial_offset`.
        """
        self._store_check.check_location()
        return initial_offset(self.options, self.service, self.clock, began_ms)

    def step(self, previous: BatchOffset, limit: int | None, *, found_new: bool = False) -> BatchOffset | Step:
        """Return the plan of the next batch, or what to do instead.

        - `limit`: the most records of the batch, or None if there is no limit.
        - `found_new`: whether the driver's polling of quiet shards has found something, or could not read every shard in time.

        Raises: OutageError if a service was unreachable for too long; ConsumerError if another job took over too many subscriptions;
        StateError if the claims of the last batch are lost.
        """
        if previous.is_unlisted:
            previous = replace(self.initial_offset(previous.planned_ms), query=previous.query)
        claims, self._just_loaded = self._just_loaded, None
        waiting = None if found_new else self._remembered_step(previous)
        if waiting is not None:
            return waiting
        self._store_check.check_location()
        claims = claims or load_batch_claims(self.store, previous)
        # If the token is there, the store is the right one, and the sink did not read the tasks without a claim.
        if claims.missing and not claims.has_token:
            self._check_may_replay(previous)
        elif claims.missing and not self.options.replays_lost_claims:
            self._store_check.check_not_removed(previous)
        self._begin_run(previous, claims)
        self._warnings.shared_consumer(self._reads.note(previous, claims))
        while True:
            plan = plan_batch(previous, claims, self._inputs(previous, limit))
            facts = Facts(
                now_ms=self.clock.now_ms(),
                retry_at_ms=self._reads.retry_at_ms(),
                found_new=found_new or self.service.has_new_data(),
                has_listed=self._listed_at_batch == plan.offset.batch,
                seen_ms=self._reads.seen_ms(),
            )
            step = next_step(plan, facts, self.options)
            if step is not Decision.LIST:
                return self._record(plan) if step is Decision.PLAN else self._note(plan, step)
            list_shards_now(self.options, self.service)
            self._listed_at_batch = plan.offset.batch  # Not set if the listing fails, so that it is repeated.

    def partitions(self, offset: BatchOffset) -> list[TaskPlan]:
        """Return the tasks of a batch, as planned. If this process has just planned the batch, no service is called.

        A batch that an earlier process has planned runs again, by its claims (what its tasks have read).

        Raises: StateError if the claims of such a batch are lost, and `onMetadataLoss` is FAIL.
        """
        token, lost_claims, is_replay = offset.store_token, False, self._last_plan != offset.plan
        if is_replay:
            lost_claims = not self._store_check.was_planned_here(offset)
            if lost_claims:
                self._check_may_replay(offset)
                self._warnings.lost_claims(offset)
            token = self._store_check.write_token(offset)
        # The first batch after a start polls, so that its rows come at once, and not at the end of a subscription's window (5.5 s).
        polls = is_replay or offset.plan == self._first_plan
        consumer_arns = None if polls else self.service.consumer_arns()
        return task_plans(offset, self.options, token, consumer_arns, lost_claims)

    def progress(self) -> dict[str, Any] | None:
        """Return the figures of the last batch, or None before the first plan."""
        if self._progress is None:
            return None
        worst = self._least_retention_left(self._progress.reached)
        warned = {"warnings": texts} if (texts := self._warnings.texts) else {}
        return {**self._progress.figures(), "timeToRetentionLossMs": None if worst is None else worst.left_ms, **warned}

    def has_news(self) -> bool:
        """Return whether figures have changed since the last call. The caller must show them to Spark now."""
        before, self._shown = self._shown, None if self._progress is None else self._progress.state()
        return self._shown != before

    def commit(self, end: BatchOffset) -> None:
        """Remove old claims (what tasks have read), because Spark has committed the batch of `end`. The claims of the last batches stay.

        An error is logged, and the next commit tries again.
        """
        try:
            self.store.purge(end.query, end.batch - self.options.retain)
        except Exception as error:
            LOG.warning(
                "old files of query %s in metadataLocation (claims) cannot be removed, and only take space; the next batch tries again: %s",
                end.query,
                error,
            )

    # --- the start of a run ------------------------------------------------------------------------------------------------------

    def _begin_run(self, previous: BatchOffset, claims: BatchClaims) -> None:
        """Check streams and retention at the first call of a run, and store where an AvailableNow run ends."""
        if self._run is not None:
            return
        if previous.batch == 0 and not self.options.properties.is_set(METADATA_ROOT):
            self._warnings.old_claims(self.store.queries() - {previous.query})
        dropped = dropped_streams({entry.shard.stream for entry in previous.shards.values()}, self.options.streams)
        reached = plan_batch(previous, claims, self._inputs(previous, None)).offset
        self._run = begin_run(
            reached, self.options, self.service, self.clock.now_ms(), is_available_now=self.is_available_now
        )
        self._warnings.dropped_streams(dropped)

    # --- claims ------------------------------------------------------------------------------------------------------------------

    def _check_may_replay(self, offset: BatchOffset) -> None:
        """Check that a batch may run again although its claims (what its tasks have read) are lost.

        Raises: StateError unless `onMetadataLoss` is REPLAY.
        """
        if not self.options.replays_lost_claims:
            raise claims_elsewhere_error(self.store, offset)

    # --- each step ---------------------------------------------------------------------------------------------------------------

    def _remembered_step(self, previous: BatchOffset) -> Wait | Watch | None:
        """Return the last step if it still holds, else None. It holds for the same plan until the time that the step names."""
        if self._remembered is None:
            return None
        plan, decided_ms, step = self._remembered
        # Before `decided_ms` the clock was set back, and the step would hold for too long.
        is_due = not decided_ms <= self.clock.now_ms() < step.until_ms
        return None if is_due or plan != previous.plan else step

    def _inputs(self, previous: BatchOffset, limit: int | None) -> PlanInputs:
        run = self._run or QueryRun()
        is_first = run.available_now is not None and previous.batch <= run.available_now.after_batch
        return PlanInputs(
            plan=random_id(),
            now_ms=self.clock.now_ms(),
            alignment=self._alignment,
            tasks_for=partial(count_tasks_of_first_batch if is_first else count_tasks, options=self.options),
            streams=self.options.stream_names,
            limit=limit,
            listed=self.service.discovered_shards(previous.shards.keys()),
            finished=self._finished,
            available_now=run.available_now,
            lost=run.lost,
        )

    def _note(self, plan: BatchPlan, step: Step) -> Step:
        """Remember a step that plans no batch, and return it."""
        if step is Decision.FINISH and plan.claims.is_unread:
            self._warnings.unread_batch(plan.offset)
        if not isinstance(step, Wait) and self._noted_plan != plan.previous.plan:
            # Only once, because the time until now counts as the batch's duration.
            self._noted_plan = plan.previous.plan
            self._progress = QueryProgress.after(plan.previous, plan.offset, self.clock.now_ms(), is_planned=False)
        if isinstance(step, Watch):
            self._just_loaded = plan.claims if step.first_look else None
            self.service.watch({entry.shard: entry.state for entry in plan.readable})
            self._remembered = plan.previous.plan, self.clock.now_ms(), replace(step, first_look=False)
        elif isinstance(step, Wait) and not plan.claims.missing:
            self._remembered = plan.previous.plan, self.clock.now_ms(), step
        return step

    def _record(self, plan: BatchPlan) -> BatchOffset:
        """Complete the plan with the token of the claim store, and return its offset. Update progress and warnings for the new batch."""
        self._finished |= plan.previous.shards.keys() - plan.offset.shards.keys()
        token = self._store_check.write_token(plan.offset, is_there=plan.claims.has_token)
        planned = replace(plan.offset, store_token=token)
        self.service.consumer_arns()  # The first call registers the consumers, so that `partitions` need not do it.
        self._warnings.after_batch(plan.previous, planned, plan.claims)
        self._warnings.retention_left(self._least_retention_left(planned))
        self._progress = QueryProgress.after(plan.previous, planned, planned.planned_ms, is_planned=True)
        self._shown = self._progress.state()
        LOG.info(self._progress.line())
        self._remembered = None
        self.service.stop_watching()
        self._last_plan = planned.plan
        self._first_plan = self._first_plan or planned.plan
        return planned

    def _least_retention_left(self, offset: BatchOffset) -> RetentionLeft | None:
        return least_retention_left(offset, self.service, self.clock.now_ms())


# --- outages, and consumers that another job uses too (F10) ---------------------------------------------------------------------------

NO_RESPONSE = "no read got a response, even in the longest window"


class FailedReadBackoff:
    """Decides when the next batch may try again after failed reads, and detects another job with the same fan-out consumer.

    Another job that uses the same `consumer` disturbs a shard: it takes over subscriptions, or makes the service refuse them. This class
    counts how often in a row that happens to each shard. A task cannot, because it sees only one or two such events in its time.

    A shard fails if its whole read got no response and its last call failed. While other shards can be read, batches follow each other as
    usual.

    - `outages`: receives which shards fail and which succeed.
    """

    def __init__(self, outages: OutageWatch, clock: Clock, consumer: str) -> None:
        self._outages = outages
        self._clock = clock
        self._consumer = consumer
        self._noted_plan = ""
        self._detectors: dict[str, SubscriptionPreemptionDetector] = {}
        self._disturbed: frozenset[str] = frozenset()
        self._noted_at = 0.0
        self._pause = 0.0

    def retry_at_ms(self) -> int:
        """Return the time before which no batch may be planned (epoch ms), or 0. Setting the wall clock does not make the pause longer."""
        # Without a pause this is 0, and not the present time: that may be a millisecond later than the time with which it is compared.
        return self._ms_in(self._noted_at + self._pause) if self._pause else 0

    def seen_ms(self) -> int:
        """Return when the claims of the last batch were first seen (epoch ms).

        The time fits the wall clock even if the clock was set since.
        """
        return self._ms_in(self._noted_at)

    def _ms_in(self, at: float) -> int:
        return self._clock.now_ms() + round((at - self._clock.monotonic()) * 1000)

    def note(self, offset: BatchOffset, claims: BatchClaims) -> frozenset[str]:
        """Count the failures in the batch of an offset. Return the shards that another job has disturbed in this batch and the one before.

        Only the first call for a batch counts.

        Raises: OutageError if a shard failed for too long; ConsumerError if too many subscriptions in a row were taken over or refused.
        """
        if offset.plan == self._noted_plan:
            return frozenset()
        self._noted_plan, self._noted_at = offset.plan, self._clock.monotonic()
        self._note_outages(offset, claims)
        for key, read in claims.shards.items():
            if key in self._detectors or read.seen.refused or read.seen.taken_over:
                self._note_subscriptions(self._detector_of(offset.shards[key].shard), read)
        before = self._disturbed
        self._disturbed = frozenset(key for key, read in claims.shards.items() if _is_disturbed(read))
        return before & self._disturbed

    def _note_outages(self, offset: BatchOffset, claims: BatchClaims) -> None:
        pauses = []
        has_response = any(read.had_response for read in claims.shards.values())
        for key, read in claims.shards.items():
            is_silent = not has_response and offset.shards[key].empty_windows >= MAX_DOUBLINGS
            failure = read.seen.failure or (NO_RESPONSE if is_silent else None)
            if read.had_response:
                self._outages.on_success(key)
            elif failure is not None:
                pauses.append(self._outages.on_failure(f"{key}: {failure}", key))
        self._pause = max(pauses, default=0.0) if not has_response else 0.0

    def _detector_of(self, shard: Shard) -> SubscriptionPreemptionDetector:
        from recordpublisher.publishers.fanout.publisher import SubscriptionPreemptionDetector  # Most queries poll.

        return self._detectors.setdefault(shard.key, SubscriptionPreemptionDetector(shard))

    def _note_subscriptions(self, detector: SubscriptionPreemptionDetector, read: ShardRead) -> None:
        for _ in range(read.seen.refused):
            detector.on_in_use(self._consumer)
        for _ in range(read.seen.taken_over):
            detector.on_preempted(self._consumer)
        if read.had_response:
            detector.on_subscribed()
        if read.had_response and not read.seen.taken_over:
            detector.on_other_end()


def _is_disturbed(read: ShardRead) -> bool:
    return read.seen.taken_over > 0 or (read.seen.refused > 0 and not read.had_response)


# --- the progress of a query ----------------------------------------------------------------------------------------------------------

_OF_A_BATCH = {
    "batch", "reading", "tasks", "lastBatchRecords", "lastBatchBytes", "recordsPerSecond", "bytesPerSecond",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """How far a query is: where its last batch ended, how much that batch read, and in how many seconds.

    While a quiet stream is watched, no batch follows. Then `batch` and the number of `tasks` still describe the last batch.
    """

    reached: BatchOffset
    tasks: int
    records: int
    bytes: int
    seconds: float
    now_ms: int

    @classmethod
    def after(cls, previous: BatchOffset, offset: BatchOffset, now_ms: int, *, is_planned: bool) -> QueryProgress:
        """Return the progress after a batch. The batch has the plan `previous`, and ended at `offset`.

        - `is_planned`: whether the next batch begins at `offset` now.
        """
        shown = offset if is_planned else replace(offset, batch=previous.batch)
        tasks = len((offset if is_planned else previous).tasks())
        records, size = offset.records - previous.records, offset.bytes - previous.bytes
        return cls(shown, tasks, records, size, max(now_ms - previous.planned_ms, 1) / 1000, now_ms)

    def figures(self) -> dict[str, Any]:
        """Return counts, rates and lags, by their names in the query's progress."""
        offset = self.reached
        entries = offset.shards.values()
        behind = [lag for entry in entries if not entry.state.ended and (lag := self._lag_ms(entry)) is not None]
        return {
            "batch": offset.batch,
            "streams": sorted({entry.shard.stream for entry in entries}),
            "shards": len(offset.shards),
            "reading": sum(entry.task is not None for entry in entries),
            "tasks": self.tasks,
            "idle": sum(entry.idle for entry in entries),
            "held": sum(is_held(entry, offset.emit_limit) for entry in entries),
            "atTip": sum(entry.seen.at_tip for entry in entries),
            "lastBatchRecords": self.records,
            "lastBatchBytes": self.bytes,
            "recordsPerSecond": round(self.records / self.seconds, 1),
            "bytesPerSecond": round(self.bytes / self.seconds, 1),
            "records": offset.records,
            "bytes": offset.bytes,
            "skippedRecords": offset.skipped,
            "millisBehindLatest": max(behind, default=None),
            "minMillisBehindLatest": min(behind, default=None),
            "avgMillisBehindLatest": round(sum(behind) / len(behind)) if behind else None,
            "globalWatermark": offset.global_watermark,
        }

    def state(self) -> dict[str, Any]:
        """Return the figures that say how far the query is, without the figures of single batches."""
        return {name: value for name, value in self.figures().items() if name not in _OF_A_BATCH}

    def _lag_ms(self, entry: ShardOffset) -> int | None:
        """Return the age of the shard's oldest row that is not in the sink (ms), or None while it is not known.

        It is the lag in the last response, plus the time since that response. The clocks of service and driver may differ, so this time is
        limited to the time since the batch was planned.
        """
        behind_ms, arrival_ms = entry.seen.behind_ms, entry.state.arrival_ms
        if behind_ms is None or entry.seen.at_tip:
            return behind_ms
        elapsed_ms = round(self.seconds * 1000)
        since_ms = elapsed_ms if arrival_ms is None else self.now_ms - arrival_ms - behind_ms
        return behind_ms + min(max(0, since_ms), elapsed_ms)

    def line(self) -> str:
        """Return a log line about the records of the last batch, and about the shards that the next batch reads."""
        offset, figures = self.reached, self.figures()
        counts = [f"{name} {figures[name]}" for name in ("shards", "reading", "tasks", "idle", "held")]
        behind = figures["millisBehindLatest"]
        return (
            f"batch {offset.batch} of query {offset.query}: {', '.join(counts)}, at tip {figures['atTip']}; "
            f"furthest behind {'unknown' if behind is None else f'{behind / 1000:.1f} s'}; "
            f"global watermark {_time(offset.global_watermark)}, emit limit {_limit(offset.emit_limit)}; "
            f"the last batch had {self.records} records and was planned {self.seconds:.1f} s ago"
        )


def _limit(emit_limit: int | None) -> str:
    if emit_limit is None:
        return "none"
    return "unknown until the first watermarks are read" if emit_limit == EMIT_NOTHING else _time(emit_limit)


def _time(millis: int | None) -> str:
    return "unknown" if millis is None else iso_time(millis)


# --- warnings about a running query ---------------------------------------------------------------------------------------------------

HOUR_MS = 3_600_000
WARN_FROM_RETENTION_PART = 0.8
"""A warning is given if the oldest unread record is older than this part of the retention."""
NEAR_LOSS = (
    "records of %s will be lost in %.1f h unless the query reads them before: the stream keeps records for %.0f h"
)
NOT_READ = (
    ". Does the sink read the batch? A file sink skips the batches that _spark_metadata in its folder has: a new checkpoint needs a new "
    "folder"
)
PARTLY_READ = (
    ". Does the sink take a part of a batch, as take(1) in foreachBatch does? Rows of tasks that ran do not come again"
)
WARM_UP_BATCHES = 3
"""How many batches after a start are not judged. They start workers and clients, so their times are not representative."""


class QueryWarnings:
    """Owns the warnings that the progress shows: first those about the options, then the last warning of each kind."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._texts = {text: text for text in options.warnings.texts}
        self._is_near_loss = False

    @property
    def texts(self) -> list[str]:
        """The warnings as the progress shows them."""
        return list(self._texts.values())

    def after_batch(self, previous: BatchOffset, offset: BatchOffset, claims: BatchClaims) -> None:
        """Warn of problems that the batch `previous` shows:

        - Tasks stored no claim (record of what they read).
        - Tasks ran one after another.
        - The lookahead is too short for the time that a batch takes.
        """
        if claims.missing:
            text = "in batch %s, %s of %s tasks stored no record of what they read (claim), so their shards are read again from its start"
            hint = NOT_READ if claims.is_unread else PARTLY_READ
            if not claims.has_token:  # The claims are lost, so the hint about the sink would be wrong.
                hint = ""
            self._warn(text + hint, previous.batch, len(claims.missing), len(claims.missing) + len(claims.began_ms))
        if previous.batch > WARM_UP_BATCHES:
            self._short_lookahead(previous, offset)
            self._tasks_one_after_the_other(previous, claims)

    def retention_left(self, worst: RetentionLeft | None) -> None:
        """Warn if the query is so far behind that records may expire unread. The next such warning comes only after it has caught up.

        - `worst`: the shard with the least time left, or None if it is not known.
        """
        is_near = worst is not None and worst.left_ms < (1 - WARN_FROM_RETENTION_PART) * worst.retention_ms
        if worst is not None and is_near and not self._is_near_loss:
            self._warn(NEAR_LOSS, worst.shard, worst.left_ms / HOUR_MS, worst.retention_ms / HOUR_MS)
        if not is_near:
            self._texts.pop(NEAR_LOSS, None)
        self._is_near_loss = is_near

    def dropped_streams(self, streams: Collection[str]) -> None:
        """Warn of streams that are in the checkpoint, but no longer among the options."""
        if streams:
            text = "no longer read, and their positions are forgotten: %s. A stream that is added again starts where the job started"
            self._warn(text, ", ".join(sorted(streams)))

    def old_claims(self, queries: Collection[str]) -> None:
        """Warn that a new query found claims (what tasks have read) of the other `queries` in its location.

        This happens if a checkpoint is lost.
        """
        if queries:
            text = (
                "metadataLocation has claims (what tasks have read) of other queries (%s), and this query has a new checkpoint: it begins "
                "at flink.stream.initpos and not where another query ended. "
                "If a checkpoint was lost or its path mistyped, stop this query, and start it "
                "with that checkpoint. Queries that share a place must give it as metadataRoot"
            )
            self._once(text, few_of(sorted(queries)))

    def shared_consumer(self, shards: Collection[str]) -> None:
        """Warn once that subscriptions to these shards are taken over or refused in batch after batch."""
        if shards:
            text = (
                "the subscriptions to %s are taken over or refused in batch after batch. If another query or job uses the consumer %s, "
                "give each a consumer of its own"
            )
            self._once(text, few_of(sorted(shards)), self._options.consumer)

    def lost_claims(self, offset: BatchOffset) -> None:
        """Warn that the batch runs again without rows, because its claims (what its tasks have read) are lost."""
        text = (
            "the claims (what tasks have read) of batch %s are lost: metadataLocation has none of this query. The batch runs again "
            "without rows, and its records come with the next one, including records that the sink already has"
        )
        self._warn(text, offset.batch)

    def unread_batch(self, offset: BatchOffset) -> None:
        """Log that an AvailableNow run ends because its sink did not read a batch."""
        LOG.warning("no task of batch %s ran, so the run ends here" + NOT_READ, offset.batch - 1)

    def _short_lookahead(self, previous: BatchOffset, offset: BatchOffset) -> None:
        lookahead = self._options.properties.value(LOOKAHEAD)
        batch_ms = offset.planned_ms - previous.planned_ms
        if lookahead is not None and lookahead < 2 * batch_ms:
            text = (
                "flink.watermark.lookahead.millis (%s ms) is below twice the time of a batch (%s ms): "
                "on live data such a job never catches up; set it higher"
            )
            self._once(text, lookahead, batch_ms)

    def _tasks_one_after_the_other(self, previous: BatchOffset, claims: BatchClaims) -> None:
        """Warn if the reads of a batch's tasks began at least a read window apart. Then there are fewer free slots than tasks."""
        began = claims.began_ms
        if len(began) > 1 and max(began) - min(began) >= self._options.window_ms:
            text = (
                "the %s tasks of a batch read one after another, %s ms apart: set maxTasks to the number of free slots"
            )
            self._once(text, len(began), max(began) - min(began))

    def _once(self, text: str, *values: object) -> None:
        if text not in self._texts:
            self._warn(text, *values)

    def _warn(self, text: str, *values: object) -> None:
        LOG.warning(text, *values)
        self._texts[text] = text % values
