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
from ..service.ports import Service
from ..stream_changes import dropped_streams, name_of
from .batch_alignment import AlignmentRules
from .batch_claims import Claimed, Probes, load_claims
from .batch_offset import Offset, ShardEntry
from .batch_progress import line
from .idle_wait import Rest, next_look_ms, nothing_is_new
from .lineage import children_of, new_entry, newcomers
from .next_offset import AvailableNow, Planned, advance
from .one_time_warnings import Notices
from .read_task import TaskPlan
from .retention_check import gone_shards
from .shard_grouping import runnable
from .task_plans import task_plans

LOG = logging.getLogger("recordpublisher.spark")
PAUSE_SECONDS = 0.05
"""Between two looks when there is nothing to plan; Spark itself asks again after 10 ms."""


class Verdict(Enum):
    """Why there is no next batch."""

    NOT_YET = "ask again"
    OVER = "the run read everything that was available"


@dataclass(slots=True)
class BatchPlanner:
    """Owns what a query's driver remembers between batches; whatever must survive is in the offsets."""

    options: SparkOptions
    service: Service
    store: ClaimStore
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = time.sleep
    last: Offset | None = None
    """The last planned batch, for progress reports."""
    _wants_available_now: bool = False
    _available_now: AvailableNow | None = None
    _finished: set[str] = field(default_factory=set)
    _gone: frozenset[str] | None = None
    _rest: Rest | None = None
    _listed_for: int = 0
    _probes: Probes = field(init=False)
    _notices: Notices = field(init=False)

    def __post_init__(self) -> None:
        self._probes = Probes(self.store)
        self._notices = Notices(self.options)

    def initial_offset(self) -> Offset:
        """Where a new query starts: every listed shard, LATEST pinned by the service's clock before listing (P3)."""
        start = self._pinned(self.service.starting_position())
        shards = [shard for stream in self.options.streams for shard in self.service.list_shards(stream)]
        offset = Offset(_random(), "start", 0, self.clock.now_ms(), _entries(shards, start))
        return replace(offset, start=start)

    def prepare_available_now(self) -> None:
        """Stop at the tips as of now (Trigger.AvailableNow)."""
        self._wants_available_now = True

    def next_offset(self, start: Offset, limit: int | None) -> Offset | None:
        """The plan of the next batch; None: nothing to plan now (Spark asks again) or, for AvailableNow, no more."""
        self._look_back(start)
        if self._rests(start):
            return None
        while (offset := self._decide(start, limit)) is Verdict.NOT_YET:
            self.sleep(PAUSE_SECONDS)
            if self._available_now is None:
                return None
        return None if isinstance(offset, Verdict) else offset

    def partitions(self, offset: Offset) -> list[TaskPlan]:
        """The tasks of a batch: a function of the offset, so that a replay finds its claims."""
        is_replay = self.last is None or self.last.plan != offset.plan
        is_forgotten = is_replay and not self._probes.remembers(offset)
        if is_forgotten:
            self._notices.of_forgotten(offset)
        probe = self._probes.plant(offset)
        return task_plans(offset, self.options, probe, self.service.consumer_arns(), is_forgotten)

    def commit(self, end: Offset) -> None:
        """A batch is done for good: forget the claims of batches long before it. What goes wrong is tried again by the next commit."""
        try:
            self.store.purge(end.query, end.batch - self.options.retain)
        except Exception as error:
            LOG.warning("old claims of query %s cannot be removed: %s", end.query, error)

    def _look_back(self, start: Offset) -> None:
        """Once for each run of a query: its streams, what is past retention, and where an AvailableNow run ends."""
        if self._gone is None:
            known = {entry.shard.stream for entry in start.shards.values()}
            self._notices.of_dropped(dropped_streams(known, self.options.streams))
            reached = advance(start, load_claims(self.store, start).shards, self._planned(start, None))
            names = {name_of(stream) for stream in self.options.streams}
            has_run = start.batch > 0
            self._gone = (
                gone_shards(reached, names, self.service, self.options.properties) if has_run else frozenset[str]()
            )
        if self._wants_available_now and self._available_now is None:
            self._list_all()  # what is there now belongs to the run, whether or not the discovery has seen it yet
            # the service's clock is cut to whole seconds: what arrived within this one belongs to the run
            arrival = max(self.service.server_time_ms(stream) for stream in self.options.streams) + 1000
            self._available_now = AvailableNow(arrival, start.batch)

    def _rests(self, start: Offset) -> bool:
        rest = self._rest
        if rest is None or rest.plan != start.plan or self.clock.now_ms() >= rest.until_ms:
            return False
        return not self.service.has_news(PAUSE_SECONDS)

    def _decide(self, start: Offset, limit: int | None) -> Offset | Verdict:
        claimed = load_claims(self.store, start)
        if self._is_too_early(claimed):
            return Verdict.NOT_YET
        offset = self._only_wanted_streams(advance(start, claimed.shards, self._planned(start, limit)))
        if self._is_over(offset, claimed):
            return self._decide(start, limit) if self._lists_again(offset) else Verdict.OVER
        if not runnable(offset) or self._may_wait(start, offset, claimed):
            return Verdict.NOT_YET
        return self._adopt(start, offset, claimed)

    def _planned(self, start: Offset, limit: int | None) -> Planned:
        known = {entry.shard.stream for entry in start.shards.values()}
        wanted = {name_of(stream) for stream in self.options.streams}
        listed = self.service.newly_listed()
        found = newcomers(listed, start.shards, self._finished)
        return Planned(
            plan=_random(),
            now_ms=self.clock.now_ms(),
            rules=AlignmentRules.of(self.options.properties),
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

    def _only_wanted_streams(self, offset: Offset) -> Offset:
        names = {name_of(stream) for stream in self.options.streams}
        return replace(
            offset, shards={key: entry for key, entry in offset.shards.items() if entry.shard.stream in names}
        )

    def _is_too_early(self, claimed: Claimed) -> bool:
        """Whether a fan-out window that ended early still keeps its successor from subscribing (F9)."""
        return self.clock.now_ms() < claimed.subscribed_ms + self.options.fan_out_window_ms

    def _may_wait(self, start: Offset, offset: Offset, claimed: Claimed) -> bool:
        """Whether nothing is new and nobody has to look; from then on the shards are watched instead."""
        if not (claimed.is_unread or nothing_is_new(start, offset, claimed)):
            return False
        now, probe_ms = self.clock.now_ms(), self.options.probe_ms
        if claimed.is_unread or self._available_now is not None:
            return now < start.planned_ms + probe_ms
        due = max(next_look_ms(offset, AlignmentRules.of(self.options.properties)), start.planned_ms + probe_ms)
        if now >= due or self.service.has_news(0):
            return False
        self._rest = Rest(start.plan, min(due, now + max(probe_ms, 1000)))
        self.service.watch({entry.shard: entry.state for entry in runnable(offset, limited=False)})
        return True

    def _is_over(self, offset: Offset, claimed: Claimed) -> bool:
        now = self._available_now
        if now is None or offset.batch - 1 <= now.after_batch:
            return False
        if claimed.is_unread:
            self._notices.of_an_unread_batch(offset)
        return claimed.is_unread or all(entry.done or entry.state.ended for entry in offset.shards.values())

    def _lists_again(self, offset: Offset) -> bool:
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

    def _adopt(self, start: Offset, offset: Offset, claimed: Claimed) -> Offset:
        self._finished |= start.shards.keys() - offset.shards.keys()
        planned = replace(offset, tasks=self.options.tasks_for(len(runnable(offset))))
        planned = replace(planned, store=self._probes.plant(planned))
        self._notices.of_batch(start, planned, claimed)
        LOG.info(line(start, planned))
        self._rest = None
        self.service.end_watch()
        self.last = planned
        return planned


def _entries(shards: Iterable[Shard], start: StartingPosition) -> dict[str, ShardEntry]:
    return {shard.key: new_entry(shard, start) for shard in shards}


def _random() -> str:
    return uuid.uuid4().hex[:12]
