"""BatchPlanner: the driver's side of a query. It plans one batch after another, from claims, new shards and the clock."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from recordpublisher.plugins.stores.read_claim_store import ReadClaimStore
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.stream_arns import stream_name

from ..dropped_streams import dropped_streams
from ..options import SparkOptions
from ..service.planning_port import PlanningPort
from .alignment import AlignmentSettings
from .batch_claims import BatchClaims, StoreVisibilityCheck, load_batch_claims, lost_claims_error
from .initial_shards import initial_shards, pinned
from .next_offset import AvailableNow, PlanInputs, next_offset
from .offset import BatchOffset, ShardOffset, random_id
from .planning_pause import (
    FIRST_LOOK_SECONDS,
    PlanningPause,
    UnansweredReads,
    has_read_everything,
    next_batch_due_ms,
)
from .progress import QueryProgress
from .query_warnings import QueryWarnings
from .reshards import children_of, new_shards, unread_shard
from .retention import RetentionLeft, least_retention_left, lost_shards
from .shard_grouping import readable_shards
from .task_read import TaskPlan
from .tasks import task_plans

LOG = logging.getLogger("recordpublisher.spark")
POLL_SECONDS = 0.05
"""How long a look at the watch of a quiet stream may wait."""


class NoBatchReason(Enum):
    """Why there is no next batch."""

    NOT_YET = "nothing to plan now"
    FINISHED = "the run has read everything that was available"


@dataclass(slots=True)
class BatchPlanner:
    """Owns what the driver of a query keeps between batches. What must survive a restart is in the offsets.

    A call that fails may be made again.
    """

    options: SparkOptions
    service: PlanningPort
    store: ReadClaimStore
    clock: Clock = field(default_factory=SystemClock)
    last: BatchOffset | None = None
    """The last planned batch."""
    is_available_now: bool = False
    """Stop at the tips as of the first plan (Trigger.AvailableNow)."""
    _available_now: AvailableNow | None = None
    _finished: set[str] = field(default_factory=set)
    _lost: frozenset[str] | None = None
    _pause: PlanningPause | None = None
    _progress: QueryProgress | None = None
    _listed_at_batch: int = 0
    _is_location_checked: bool = False
    reads: UnansweredReads = field(init=False)
    _store_check: StoreVisibilityCheck = field(init=False)
    _warnings: QueryWarnings = field(init=False)

    def __post_init__(self) -> None:
        self.reads = UnansweredReads(self.options, self.clock)
        self._store_check = StoreVisibilityCheck(self.store)
        self._warnings = QueryWarnings(self.options)

    def initial_offset(self) -> BatchOffset:
        """Where a new query starts. LATEST becomes the service's time before the listing (P3)."""
        self._check_location()
        start = pinned(self.service.starting_position(), self.options.streams[0], self.service)
        shards = initial_shards(self.options, self.service, start)
        entries = {shard.key: ShardOffset(shard, state) for shard, state in shards}
        return BatchOffset(random_id(), "start", 0, self.clock.now_ms(), entries, start=start)

    def next_offset(self, start: BatchOffset, limit: int | None) -> BatchOffset | NoBatchReason:
        """The plan of the next batch, or why there is none. Raises: OutageError."""
        if start.is_unlisted:
            start = replace(self.initial_offset(), query=start.query)
        self._begin_run(start)
        if self._wait_in_pause(start):
            return NoBatchReason.NOT_YET
        return self._plan(start, limit)

    def partitions(self, offset: BatchOffset) -> list[TaskPlan]:
        """The tasks of a batch: a function of the offset, so that a replay finds its claims. For a batch just planned it makes no call.

        Raises: StateError when the claims of a batch that is run again are lost.
        """
        token, lost_claims = offset.store_token, False
        if self.last is None or self.last.plan != offset.plan:  # a replay
            lost_claims = not self._store_check.is_planning_store(offset)
            if lost_claims:
                self._check_may_replay(offset)
                self._warnings.lost_claims(offset)
            token = self._store_check.write_token(offset)
        return task_plans(offset, self.options, token, self.service.consumer_arns(), lost_claims)

    def progress(self) -> dict[str, Any] | None:
        """The figures of the last batch; None before the first plan."""
        if self._progress is None:
            return None
        worst = self._least_retention_left(self._progress.reached)
        warned = {"warnings": texts} if (texts := self._warnings.texts) else {}
        return {**self._progress.figures(), "timeToRetentionLossMs": None if worst is None else worst.left_ms, **warned}

    def commit(self, end: BatchOffset) -> None:
        """Spark has committed a batch: remove the claims of batches long before it. An error is logged; the next commit tries again."""
        try:
            self.store.purge(end.query, end.batch - self.options.retain)
        except Exception as error:
            LOG.warning("old claims of query %s cannot be removed: %s", end.query, error)

    # --- the start of a run ------------------------------------------------------------------------------------------------------

    def _begin_run(self, start: BatchOffset) -> None:
        """At the first call of a run: check store, streams and retention, and note where an AvailableNow run ends."""
        self._check_location()
        if self._lost is None:
            known = {entry.shard.stream for entry in start.shards.values()}
            self._warnings.dropped_streams(dropped_streams(known, self.options.streams))
            self._lost = self._check_retention(start) if start.batch > 0 else frozenset()
        if self.is_available_now and self._available_now is None:
            self._list_all()  # existing shards belong to the run, even if the discovery has not found them yet
            # the service's time is truncated to whole seconds: records of this second belong to the run
            arrival_ms = max(self.service.server_time_ms(stream) for stream in self.options.streams) + 1000
            self._available_now = AvailableNow(arrival_ms, start.batch)

    def _check_location(self) -> None:
        """Raises: ConfigurationError when the location cannot hold claims."""
        if not self._is_location_checked:
            self.store.write_marker("location-check", "driver")
            self._is_location_checked = True

    def _check_retention(self, start: BatchOffset) -> frozenset[str]:
        # the last batch may be read and claimed: check from where it ended
        reached = next_offset(start, self._load_claims(start).shards, self._inputs(start, None))
        return lost_shards(reached, self._stream_names(), self.service, self.options.properties, self.clock.now_ms())

    def _least_retention_left(self, offset: BatchOffset) -> RetentionLeft | None:
        return least_retention_left(offset, self.service.retention_ms, self.clock.now_ms())

    # --- claims ------------------------------------------------------------------------------------------------------------------

    def _load_claims(self, offset: BatchOffset) -> BatchClaims:
        """The claims of a batch; a task that the sink did not read has none. Raises: StateError when they are lost."""
        claims = load_batch_claims(self.store, offset)
        if claims.missing and not claims.has_token:
            self._check_may_replay(offset)
        return claims

    def _check_may_replay(self, offset: BatchOffset) -> None:
        """The store is not the one that the batch was planned with. Raises: StateError unless `onMetadataLoss` is REPLAY."""
        if not self.options.replays_lost_claims:
            raise lost_claims_error(self.store, offset)

    # --- each plan ---------------------------------------------------------------------------------------------------------------

    def _wait_in_pause(self, start: BatchOffset) -> bool:
        """During a pause, wait a moment for new data; returns whether the pause continues."""
        pause = self._pause
        if pause is None or pause.plan != start.plan or self.clock.now_ms() >= pause.until_ms:
            return False
        return not self.service.wait_for_new_data(POLL_SECONDS)

    def _plan(self, start: BatchOffset, limit: int | None) -> BatchOffset | NoBatchReason:
        claims = self._load_claims(start)
        self.reads.note(start, claims)
        if self._is_too_early(claims):
            return NoBatchReason.NOT_YET
        offset = self._without_dropped_streams(next_offset(start, claims.shards, self._inputs(start, limit)))
        if self._is_run_finished(offset, claims):
            # children that no response has named yet belong to the run too: a new listing shows them
            if self._has_ended_shard_without_children(offset) and self._list_once_for(offset):
                return self._plan(start, limit)
            if claims.is_unread:
                self._warnings.unread_batch(offset)
            return NoBatchReason.FINISHED
        if not readable_shards(offset) or self._pause_if_quiet(start, offset, claims):
            return NoBatchReason.NOT_YET
        return self._record_plan(start, offset, claims)

    def _pause_if_quiet(self, start: BatchOffset, offset: BatchOffset, claims: BatchClaims) -> bool:
        """Whether no batch is needed now. On a quiet stream this starts to watch the shards, and pauses planning."""
        now, probe_ms = self.clock.now_ms(), self.options.probe_ms
        if claims.is_unread:
            return now < start.planned_ms + probe_ms
        if not has_read_everything(start, offset, claims):
            return False
        if self._available_now is not None:
            return claims.is_quiet and now < start.planned_ms + probe_ms
        due_ms = max(next_batch_due_ms(offset, self._alignment()), start.planned_ms + probe_ms)
        if now >= due_ms or self.service.wait_for_new_data(0):
            return False
        self.service.watch({entry.shard: entry.state for entry in readable_shards(offset, limited=False)})
        # after records there may be more already; Spark may not ask again before its next trigger
        if not claims.is_quiet and not self.service.finds_nothing(FIRST_LOOK_SECONDS):
            return False
        self._pause = PlanningPause(start.plan, min(due_ms, now + max(probe_ms, 1000)))
        self._progress = QueryProgress.after(start, offset, now, is_planned=False)
        return True

    def _record_plan(self, start: BatchOffset, offset: BatchOffset, claims: BatchClaims) -> BatchOffset:
        """Complete the offset with its tasks and the store's token, and note that it is planned."""
        self._finished |= start.shards.keys() - offset.shards.keys()
        planned = replace(offset, tasks=self.options.tasks_for(len(readable_shards(offset))))
        planned = replace(planned, store_token=self._store_check.write_token(planned, is_there=claims.has_token))
        self.service.consumer_arns()  # registers at the first call, so that `partitions` need not
        self._warnings.after_batch(start, planned, claims)
        self._warnings.retention_left(self._least_retention_left(planned))
        self._progress = QueryProgress.after(start, planned, planned.planned_ms, is_planned=True)
        LOG.info(self._progress.line())
        self._pause = None
        self.service.stop_watching()
        self.last = planned
        return planned

    # --- what a plan is made of --------------------------------------------------------------------------------------------------

    def _inputs(self, start: BatchOffset, limit: int | None) -> PlanInputs:
        known = {entry.shard.stream for entry in start.shards.values()}
        added = self._stream_names() - known
        listed = self.service.discovered_shards()
        found = new_shards(listed, start.shards, self._finished)
        return PlanInputs(
            plan=random_id(),
            now_ms=self.clock.now_ms(),
            alignment=self._alignment(),
            limit=limit,
            found=tuple(shard for shard in found if shard.stream in known),
            new_streams=_unread_shards((shard for shard in listed if shard.stream in added), start.start),
            available_now=self._available_now,
            lost=self._lost or frozenset(),
        )

    def _alignment(self) -> AlignmentSettings:
        return AlignmentSettings.of(self.options.properties)

    def _stream_names(self) -> set[str]:
        return {stream_name(stream) for stream in self.options.streams}

    def _without_dropped_streams(self, offset: BatchOffset) -> BatchOffset:
        names = self._stream_names()
        return replace(
            offset, shards={key: entry for key, entry in offset.shards.items() if entry.shard.stream in names}
        )

    def _is_too_early(self, claims: BatchClaims) -> bool:
        """Whether a fan-out read that ended early still keeps the next one from subscribing (F9), or an outage is waited out."""
        return self.clock.now_ms() < max(claims.subscribed_ms + self.options.fan_out_window_ms, self.reads.retry_at_ms)

    def _is_run_finished(self, offset: BatchOffset, claims: BatchClaims) -> bool:
        """Whether an AvailableNow run has read everything, or its sink did not read the last batch."""
        run = self._available_now
        if run is None or offset.batch - 1 <= run.after_batch:
            return False
        return claims.is_unread or all(entry.done or entry.state.ended for entry in offset.shards.values())

    def _has_ended_shard_without_children(self, offset: BatchOffset) -> bool:
        return any(entry.state.ended and not children_of(entry, offset.shards) for entry in offset.shards.values())

    def _list_once_for(self, offset: BatchOffset) -> bool:
        """List all streams, once for each batch; whether that was done now."""
        if self._listed_at_batch == offset.batch:
            return False
        self._listed_at_batch = offset.batch
        self._list_all()
        return True

    def _list_all(self) -> None:
        for stream in self.options.streams:
            self.service.list_shards(stream)


def _unread_shards(shards: Iterable[Shard], start: StartingPosition) -> dict[str, ShardOffset]:
    return {shard.key: unread_shard(shard, start) for shard in shards}
