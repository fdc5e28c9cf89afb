"""The driver's part of a query. It loads claims, calls `plan_batch` and `next_step`, and keeps what the progress shows."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from recordpublisher.plugins.stores.read_claim_store import ReadClaimStore
from recordpublisher.publishers.clock import Clock, SystemClock

from ..options.places import METADATA_ROOT
from ..options.spark_options import SparkOptions
from ..outages import OutageWatch
from ..service.kinesis_service import KinesisService
from .batch_claims import BatchClaims, StoreVisibilityCheck, load_batch_claims, lost_claims_error
from .failed_reads import FailedReads
from .next_step import Decision, Facts, Step, Wait, Watch, next_step
from .offset import BatchOffset, random_id
from .plan import BatchPlan, PlanInputs, plan_batch
from .planned_watermark import AlignmentSettings
from .progress import QueryProgress
from .query_start import QueryRun, begin_run, dropped_streams, initial_offset, list_shards_now
from .query_warnings import QueryWarnings
from .retention import RetentionLeft, least_retention_left
from .task_plans import task_plans
from .task_read import TaskPlan

LOG = logging.getLogger("recordpublisher.spark")


@dataclass(slots=True)
class BatchPlanner:
    """Owns the values that the driver of a query keeps between batches. Values that must survive a restart are in the offsets.

    It waits only for answers of services. A call that fails may be made again.
    """

    options: SparkOptions
    service: KinesisService
    store: ReadClaimStore
    clock: Clock = field(default_factory=SystemClock)
    is_available_now: bool = False
    """Stop at the tips as of the first plan (Trigger.AvailableNow)."""
    outages: OutageWatch = field(init=False)
    _last_plan: str = ""
    _run: QueryRun | None = None
    _finished: set[str] = field(default_factory=set)
    _remembered: tuple[str, Wait | Watch] | None = None
    _just_loaded: BatchClaims | None = None
    """The claims from before a first look at the shards. They need not be loaded again, because the look ends within a second."""
    _progress: QueryProgress | None = None
    _shown: Mapping[str, Any] | None = None
    """The state in the progress that Spark received last."""
    _noted_plan: str = ""
    """The plan of the batch whose end `_progress` shows, if no batch follows it."""
    _listed_at_batch: int = 0
    _reads: FailedReads = field(init=False)
    _store_check: StoreVisibilityCheck = field(init=False)
    _warnings: QueryWarnings = field(init=False)
    _alignment: AlignmentSettings = field(init=False)

    def __post_init__(self) -> None:
        self.outages = OutageWatch(self.options.max_outage_ms, self.clock)
        self._reads = FailedReads(self.outages, self.clock, self.options.consumer)
        self._store_check = StoreVisibilityCheck(self.store)
        self._warnings = QueryWarnings(self.options)
        self._alignment = AlignmentSettings.of(self.options.properties)

    def prepare_available_now(self) -> None:
        """Stop at the tips as of the next plan (Trigger.AvailableNow)."""
        self.is_available_now, self._run, self._remembered = True, None, None

    def initial_offset(self, began_ms: int) -> BatchOffset:
        """Return where a new query starts that began at `began_ms` (epoch ms) by the driver's clock.

        Raises: the errors of `query_start.initial_offset`; ConfigurationError if the place cannot hold claims.
        """
        self._store_check.check_location()
        return initial_offset(self.options, self.service, self.clock, began_ms)

    def step(self, previous: BatchOffset, limit: int | None, *, found_new: bool = False) -> BatchOffset | Step:
        """Return the plan of the next batch, or what to do instead.

        - `found_new`: whether the watch has found something, or could not read every shard in time.

        Raises: OutageError if a service was away for too long; StateError if the claims of the last batch are lost.
        """
        if previous.is_unlisted:
            previous = replace(self.initial_offset(previous.planned_ms), query=previous.query)
        claims, self._just_loaded = self._just_loaded, None
        waiting = None if found_new else self._remembered_step(previous)
        if waiting is not None:
            return waiting
        self._store_check.check_location()
        claims = claims or load_batch_claims(self.store, previous)
        if claims.missing and not claims.has_token:  # A task that the sink did not read has no claim.
            self._check_may_replay(previous)
        self._begin_run(previous, claims)
        self._warnings.shared_consumer(self._reads.note(previous, claims))
        while True:
            plan = plan_batch(previous, claims, self._inputs(previous, limit))
            facts = Facts(
                now_ms=self.clock.now_ms(),
                retry_at_ms=self._reads.retry_at_ms,
                found_new=found_new or self.service.has_new_data(),
                has_listed=self._listed_at_batch == plan.offset.batch,
            )
            step = next_step(plan, facts, self.options)
            if step is not Decision.LIST:
                return self._record(plan) if step is Decision.PLAN else self._note(plan, step)
            list_shards_now(self.options, self.service)
            self._listed_at_batch = plan.offset.batch  # Not set if the listing fails, so that it is repeated.

    def partitions(self, offset: BatchOffset) -> list[TaskPlan]:
        """Return the tasks of a batch, as planned. For a batch that was just planned this makes no call.

        Raises: StateError if a batch runs again whose claims are lost.
        """
        token, lost_claims = offset.store_token, False
        if self._last_plan != offset.plan:  # The batch is replayed.
            lost_claims = not self._store_check.is_planning_store(offset)
            if lost_claims:
                self._check_may_replay(offset)
                self._warnings.lost_claims(offset)
            token = self._store_check.write_token(offset)
        return task_plans(offset, self.options, token, self.service.consumer_arns(), lost_claims)

    def progress(self) -> dict[str, Any] | None:
        """Return the figures of the last batch; None before the first plan."""
        if self._progress is None:
            return None
        worst = self._least_retention_left(self._progress.reached)
        warned = {"warnings": texts} if (texts := self._warnings.texts) else {}
        return {**self._progress.figures(), "timeToRetentionLossMs": None if worst is None else worst.left_ms, **warned}

    def has_news(self) -> bool:
        """Return whether there are figures that Spark did not receive with the last plan. The caller shows them now."""
        before, self._shown = self._shown, None if self._progress is None else self._progress.state()
        return self._shown != before

    def commit(self, end: BatchOffset) -> None:
        """Remove the claims of batches long before the batch that Spark has committed. An error is logged; the next commit tries again."""
        try:
            self.store.purge(end.query, end.batch - self.options.retain)
        except Exception as error:
            LOG.warning("old claims of query %s cannot be removed: %s", end.query, error)

    # --- the start of a run ------------------------------------------------------------------------------------------------------

    def _begin_run(self, previous: BatchOffset, claims: BatchClaims) -> None:
        """Check streams and retention at the first call of a run, and note where an AvailableNow run ends."""
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
        """Check that a batch may be replayed although its claims (what each task has read) are not in the store.

        Raises: StateError unless `onMetadataLoss` is REPLAY.
        """
        if not self.options.replays_lost_claims:
            raise lost_claims_error(self.store, offset)

    # --- each step ---------------------------------------------------------------------------------------------------------------

    def _remembered_step(self, previous: BatchOffset) -> Wait | Watch | None:
        """Return the last step while it is valid. Before its time only something that the watch finds can change it."""
        if self._remembered is None:
            return None
        plan, step = self._remembered
        return step if plan == previous.plan and self.clock.now_ms() < step.until_ms else None

    def _inputs(self, previous: BatchOffset, limit: int | None) -> PlanInputs:
        run = self._run or QueryRun()
        is_first = run.available_now is not None and previous.batch <= run.available_now.after_batch
        return PlanInputs(
            plan=random_id(),
            now_ms=self.clock.now_ms(),
            alignment=self._alignment,
            tasks_for=self.options.tasks_of_first_batch if is_first else self.options.tasks_for,
            streams=self.options.stream_names,
            limit=limit,
            listed=self.service.discovered_shards(previous.shards.keys()),
            finished=self._finished,
            available_now=run.available_now,
            lost=run.lost,
        )

    def _note(self, plan: BatchPlan, step: Step) -> Step:
        """Remember that no batch is planned now, and return the step."""
        if step is Decision.FINISH and plan.claims.is_unread:
            self._warnings.unread_batch(plan.offset)
        if not isinstance(step, Wait) and self._noted_plan != plan.previous.plan:
            self._noted_plan = plan.previous.plan  # A later look does not change how long the batch took.
            self._progress = QueryProgress.after(plan.previous, plan.offset, self.clock.now_ms(), is_planned=False)
        if isinstance(step, Watch):
            self._just_loaded = plan.claims if step.first_look else None
            self.service.watch({entry.shard: entry.state for entry in plan.readable})
            self._remembered = plan.previous.plan, replace(step, first_look=False)
        elif isinstance(step, Wait) and not plan.claims.missing:
            self._remembered = plan.previous.plan, step
        return step

    def _record(self, plan: BatchPlan) -> BatchOffset:
        """Complete the plan with the store's token, and note that it is planned."""
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
        return planned

    def _least_retention_left(self, offset: BatchOffset) -> RetentionLeft | None:
        return least_retention_left(offset, self.service, self.clock.now_ms())
