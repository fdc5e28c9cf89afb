"""The driver's side of a query: plans one batch after the other from claims, new shards and the clock."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from recordpublisher.plugins.stores.ports import ClaimStore
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.shards import Shard

from ..options import SparkOptions
from ..service.planning_service import PlanningService
from ..stream_changes import dropped_streams, name_of
from .batch_alignment import AlignmentSettings
from .batch_claims import BatchClaims, StoreVisibilityCheck, load_batch_claims
from .batch_offset import BatchOffset, ShardOffset
from .batch_progress import progress_line
from .lineage import children_of, new_shards, unread_shard
from .next_offset import AvailableNow, PlanInputs, advance
from .one_time_warnings import OneTimeWarnings
from .planning_pause import PlanningPause, found_nothing_new, next_batch_due_ms
from .read_task import TaskPlan
from .retention_check import lost_shards
from .shard_grouping import readable_shards
from .task_plans import task_plans

LOG = logging.getLogger("recordpublisher.spark")
PAUSE_SECONDS = 0.05
"""Between two looks when there is nothing to plan; Spark itself asks again after 10 ms."""


class NoBatchReason(Enum):
    """Why there is no next batch."""

    NOT_YET = "ask again"
    FINISHED = "the run read everything that was available"


@dataclass(slots=True)
class BatchPlanner:
    """Owns what a query's driver remembers between batches; whatever must survive is in the offsets."""

    options: SparkOptions
    service: PlanningService
    store: ClaimStore
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = time.sleep
    last: BatchOffset | None = None
    """The last planned batch, for progress reports."""
    _wants_available_now: bool = False
    _available_now: AvailableNow | None = None
    _finished: set[str] = field(default_factory=set)
    _gone: frozenset[str] | None = None
    _rest: PlanningPause | None = None
    _listed_for: int = 0
    _store_check: StoreVisibilityCheck = field(init=False)
    _warnings: OneTimeWarnings = field(init=False)

    def __post_init__(self) -> None:
        self._store_check = StoreVisibilityCheck(self.store)
        self._warnings = OneTimeWarnings(self.options)

    def initial_offset(self) -> BatchOffset:
        """Where a new query starts: every listed shard, LATEST pinned by the service's clock before listing (P3)."""
        start = self._pinned(self.service.starting_position())
        shards = [shard for stream in self.options.streams for shard in self.service.list_shards(stream)]
        offset = BatchOffset(_random(), "start", 0, self.clock.now_ms(), _entries(shards, start))
        return replace(offset, start=start)

    def prepare_available_now(self) -> None:
        """Stop at the tips as of now (Trigger.AvailableNow)."""
        self._wants_available_now = True

    def next_offset(self, start: BatchOffset, limit: int | None) -> BatchOffset | None:
        """The plan of the next batch; None: nothing to plan now (Spark asks again) or, for AvailableNow, no more."""
        self._look_back(start)
        if self._rests(start):
            return None
        while (offset := self._decide(start, limit)) is NoBatchReason.NOT_YET:
            self.sleep(PAUSE_SECONDS)
            if self._available_now is None:
                return None
        return None if isinstance(offset, NoBatchReason) else offset

    def partitions(self, offset: BatchOffset) -> list[TaskPlan]:
        """The tasks of a batch: a function of the offset, so that a replay finds its claims."""
        is_replay = self.last is None or self.last.plan != offset.plan
        is_forgotten = is_replay and not self._store_check.is_planning_store(offset)
        if is_forgotten:
            self._warnings.of_forgotten(offset)
        probe = self._store_check.write_token(offset)
        return task_plans(offset, self.options, probe, self.service.consumer_arns(), is_forgotten)

    def commit(self, end: BatchOffset) -> None:
        """A batch is done for good: forget the claims of batches long before it. What goes wrong is tried again by the next commit."""
        try:
            self.store.purge(end.query, end.batch - self.options.retain)
        except Exception as error:
            LOG.warning("old claims of query %s cannot be removed: %s", end.query, error)

    def _look_back(self, start: BatchOffset) -> None:
        """Once for each run of a query: its streams, what is past retention, and where an AvailableNow run ends."""
        if self._gone is None:
            known = {entry.shard.stream for entry in start.shards.values()}
            self._warnings.of_dropped(dropped_streams(known, self.options.streams))
            reached = advance(start, load_batch_claims(self.store, start).shards, self._planned(start, None))
            names = {name_of(stream) for stream in self.options.streams}
            has_run = start.batch > 0
            self._gone = (
                lost_shards(reached, names, self.service, self.options.properties) if has_run else frozenset[str]()
            )
        if self._wants_available_now and self._available_now is None:
            self._list_all()  # what is there now belongs to the run, whether or not the discovery has seen it yet
            # the service's clock is cut to whole seconds: what arrived within this one belongs to the run
            arrival = max(self.service.server_time_ms(stream) for stream in self.options.streams) + 1000
            self._available_now = AvailableNow(arrival, start.batch)

    def _rests(self, start: BatchOffset) -> bool:
        rest = self._rest
        if rest is None or rest.plan != start.plan or self.clock.now_ms() >= rest.until_ms:
            return False
        return not self.service.wait_for_new_data(PAUSE_SECONDS)

    def _decide(self, start: BatchOffset, limit: int | None) -> BatchOffset | NoBatchReason:
        claimed = load_batch_claims(self.store, start)
        if self._is_too_early(claimed):
            return NoBatchReason.NOT_YET
        offset = self._only_wanted_streams(advance(start, claimed.shards, self._planned(start, limit)))
        if self._is_over(offset, claimed):
            return self._decide(start, limit) if self._lists_again(offset) else NoBatchReason.FINISHED
        if not readable_shards(offset) or self._may_wait(start, offset, claimed):
            return NoBatchReason.NOT_YET
        return self._adopt(start, offset, claimed)

    def _planned(self, start: BatchOffset, limit: int | None) -> PlanInputs:
        known = {entry.shard.stream for entry in start.shards.values()}
        wanted = {name_of(stream) for stream in self.options.streams}
        listed = self.service.discovered_shards()
        found = new_shards(listed, start.shards, self._finished)
        return PlanInputs(
            plan=_random(),
            now_ms=self.clock.now_ms(),
            alignment=AlignmentSettings.of(self.options.properties),
            limit=limit,
            found=tuple(shard for shard in found if shard.stream in known),
            new_streams=_entries((shard for shard in listed if shard.stream in wanted - known), start.start),
            available_now=self._available_now,
            gone=self._gone or frozenset(),
        )

    def _pinned(self, start: StartingPosition) -> StartingPosition:
        if start.type is not PositionType.LATEST:
            return start
        return StartingPosition.at_timestamp(self.service.server_time_ms(self.options.streams[0]))

    def _only_wanted_streams(self, offset: BatchOffset) -> BatchOffset:
        names = {name_of(stream) for stream in self.options.streams}
        return replace(
            offset, shards={key: entry for key, entry in offset.shards.items() if entry.shard.stream in names}
        )

    def _is_too_early(self, claimed: BatchClaims) -> bool:
        """Whether a fan-out window that ended early still keeps its successor from subscribing (F9)."""
        return self.clock.now_ms() < claimed.subscribed_ms + self.options.fan_out_window_ms

    def _may_wait(self, start: BatchOffset, offset: BatchOffset, claimed: BatchClaims) -> bool:
        """Whether nothing is new and nobody has to look; from then on the shards are watched instead."""
        if not (claimed.is_unread or found_nothing_new(start, offset, claimed)):
            return False
        now, probe_ms = self.clock.now_ms(), self.options.probe_ms
        if claimed.is_unread or self._available_now is not None:
            return now < start.planned_ms + probe_ms
        due = max(next_batch_due_ms(offset, AlignmentSettings.of(self.options.properties)), start.planned_ms + probe_ms)
        if now >= due or self.service.wait_for_new_data(0):
            return False
        self._rest = PlanningPause(start.plan, min(due, now + max(probe_ms, 1000)))
        self.service.watch({entry.shard: entry.state for entry in readable_shards(offset, limited=False)})
        return True

    def _is_over(self, offset: BatchOffset, claimed: BatchClaims) -> bool:
        now = self._available_now
        if now is None or offset.batch - 1 <= now.after_batch:
            return False
        if claimed.is_unread:
            self._warnings.of_an_unread_batch(offset)
        return claimed.is_unread or all(entry.done or entry.state.ended for entry in offset.shards.values())

    def _lists_again(self, offset: BatchOffset) -> bool:
        """Before an AvailableNow run ends: children that no answer has named yet belong to it too."""
        has_orphans = any(
            entry.state.ended and not children_of(entry, offset.shards) for entry in offset.shards.values()
        )
        if not has_orphans or self._listed_for == offset.batch:
            return False
        self._listed_for = offset.batch
        self._list_all()
        return True

    def _list_all(self) -> None:
        for stream in self.options.streams:
            self.service.list_shards(stream)

    def _adopt(self, start: BatchOffset, offset: BatchOffset, claimed: BatchClaims) -> BatchOffset:
        self._finished |= start.shards.keys() - offset.shards.keys()
        planned = replace(offset, tasks=self.options.tasks_for(len(readable_shards(offset))))
        planned = replace(planned, store_token=self._store_check.write_token(planned))
        self._warnings.of_batch(start, planned, claimed)
        LOG.info(progress_line(start, planned))
        self._rest = None
        self.service.stop_watching()
        self.last = planned
        return planned


def _entries(shards: Iterable[Shard], start: StartingPosition) -> dict[str, ShardOffset]:
    return {shard.key: unread_shard(shard, start) for shard in shards}


def _random() -> str:
    return uuid.uuid4().hex[:12]
