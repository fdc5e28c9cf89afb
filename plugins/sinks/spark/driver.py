"""The driver's side of a query: plans one batch after the other from claims, new shards and the clock."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from ....fetcher.bounded import Bounds
from ....publishers.clock import Clock, SystemClock
from ....publishers.positions import PositionType, StartingPosition
from ...state.claims import ClaimStore
from .alignment import AlignmentRules
from .claimed import Claimed, identity, load_claims
from .folding import AvailableNow, Planned, advance
from .lineage import new_entry, newcomers
from .offset import NOTHING, Offset, ShardEntry
from .options import SparkOptions
from .planning import groups, records_per_shard, runnable
from .progress import line
from .service import Service
from .task import TaskPlan

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
    _wants_available_now: bool = False
    _available_now: AvailableNow | None = None
    _finished: set[str] = field(default_factory=set)
    _probes: dict[str, str] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)

    def initial_offset(self) -> Offset:
        """Where a new query starts: every listed shard, LATEST pinned by the service's clock before listing (P3)."""
        offset = Offset(_random(), "start", 0, self.clock.now_ms(), {})
        return replace(offset, shards=self._started(self.options.streams))

    def prepare_available_now(self) -> None:
        """Stop at the tips as of now (Trigger.AvailableNow)."""
        self._wants_available_now = True

    def next_offset(self, start: Offset, limit: int | None) -> Offset | None:
        """The plan of the next batch; None: nothing to plan now (Spark asks again) or, for AvailableNow, no more."""
        self._pin_available_now(start)
        while (offset := self._decide(start, limit)) is Verdict.NOT_YET:
            self.sleep(PAUSE_SECONDS)
            if self._available_now is None:
                return None
        return None if isinstance(offset, Verdict) else offset

    def partitions(self, offset: Offset) -> list[TaskPlan]:
        """The tasks of a batch: a function of the offset, so that a replay finds its claims."""
        probe = self._probe(offset.query)
        arns = self.service.consumer_arns()
        again = "POLLING" if self.options.is_fan_out else self.options.publisher
        first = self.options.publisher if self._subscribes(offset) else again
        return [
            TaskPlan(identity(offset), number, tuple(group), self._bounds(offset, group), first, again, probe, arns)
            for number, group in enumerate(groups(offset))
        ]

    def commit(self, end: Offset) -> None:
        """A batch is done for good: forget the claims of batches long before it."""
        self.store.purge(end.query, end.batch - self.options.retain)

    def _decide(self, start: Offset, limit: int | None) -> Offset | Verdict:
        claimed = load_claims(self.store, start)
        if self._is_too_early(claimed):
            return Verdict.NOT_YET
        offset = self._only_wanted_streams(advance(start, claimed.shards, self._planned(start, limit)))
        if self._is_over(offset, claimed):
            return Verdict.OVER
        if not runnable(offset) or self._may_wait(start, offset, claimed):
            return Verdict.NOT_YET
        return self._adopt(start, offset, claimed)

    def _subscribes(self, offset: Offset) -> bool:
        """Whether first reads subscribe; a look at the heads polls, it is over long before the five seconds of F9."""
        return self.options.is_fan_out and offset.bound != NOTHING

    def _bounds(self, offset: Offset, group: list[ShardEntry]) -> Bounds:
        share = records_per_shard(offset)
        fan_out = self._subscribes(offset)
        window_ms = self.options.fan_out_window_ms if fan_out else self.options.window_ms
        return Bounds(
            max_time=window_ms / 1000,
            max_records=self.options.max_task_records,
            max_bytes=self.options.max_bytes,
            until_event_time=offset.bound,
            # a fan-out window lasts: its successor may not subscribe before (F9)
            stop_at_tip=not fan_out,
            shard_limits={} if share is None else {entry.key: share for entry in group},
        )

    def _planned(self, start: Offset, limit: int | None) -> Planned:
        known = {entry.shard.stream for entry in start.shards.values()}
        found = newcomers(self.service.newly_listed(), start.shards, self._finished)
        return Planned(
            plan=_random(),
            now_ms=self.clock.now_ms(),
            rules=AlignmentRules.of(self.options.properties),
            limit=limit,
            found=tuple(shard for shard in found if shard.stream in known),
            new_streams=self._started(stream for stream in self.options.streams if name_of(stream) not in known),
            available_now=self._available_now,
        )

    def _started(self, streams: Iterable[str]) -> dict[str, ShardEntry]:
        """Every listed shard of new streams, at the job's start."""
        entries: dict[str, ShardEntry] = {}
        for stream in streams:
            start = self._pinned(self.service.starting_position(), stream)
            entries |= {shard.key: new_entry(shard, start) for shard in self.service.list_shards(stream)}
        return entries

    def _pinned(self, start: StartingPosition, stream: str) -> StartingPosition:
        if start.type is not PositionType.LATEST:
            return start
        return StartingPosition.at_timestamp(self.service.server_time_ms(stream))

    def _only_wanted_streams(self, offset: Offset) -> Offset:
        names = {name_of(stream) for stream in self.options.streams}
        return replace(
            offset, shards={key: entry for key, entry in offset.shards.items() if entry.shard.stream in names}
        )

    def _is_too_early(self, claimed: Claimed) -> bool:
        """Whether a fan-out window that ended early still keeps its successor from subscribing (F9)."""
        return self.clock.now_ms() < claimed.subscribed_ms + self.options.fan_out_window_ms

    def _may_wait(self, start: Offset, offset: Offset, claimed: Claimed) -> bool:
        """Whether nothing is new, every readable shard was just looked at, and that was not long ago."""
        same = start.shards.keys() == offset.shards.keys() and start.bound == offset.bound
        all_seen = all(entry.key in claimed.shards for entry in runnable(replace(offset, limit=None)))
        nothing_new = start.batch > 0 and same and all_seen and claimed.is_quiet
        return (nothing_new or claimed.is_unread) and self.clock.now_ms() < start.planned_ms + self.options.probe_ms

    def _is_over(self, offset: Offset, claimed: Claimed) -> bool:
        now = self._available_now
        if now is None or offset.batch - 1 <= now.after_batch:
            return False
        if claimed.is_unread:
            LOG.warning(
                "no task of batch %s was run, so the run ends here: does the sink read the batch?", offset.batch - 1
            )
        return claimed.is_unread or all(entry.done or entry.state.ended for entry in offset.shards.values())

    def _pin_available_now(self, start: Offset) -> None:
        if self._wants_available_now and self._available_now is None:
            # the service's clock is cut to whole seconds: what arrived within this one belongs to the run
            arrival = max(self.service.server_time_ms(stream) for stream in self.options.streams) + 1000
            self._available_now = AvailableNow(arrival, start.batch)

    def _adopt(self, start: Offset, offset: Offset, claimed: Claimed) -> Offset:
        if claimed.missing:
            text = "claims of batch %s are missing (tasks %s): their shards are read again from where the batch started"
            LOG.warning(text, start.batch, claimed.missing)
        self._finished |= start.shards.keys() - offset.shards.keys()
        planned = replace(offset, tasks=self.options.tasks_for(len(runnable(offset))))
        self._warn_of_short_lookahead(start, planned)
        LOG.info(line(start, planned))
        return planned

    def _warn_of_short_lookahead(self, start: Offset, offset: Offset) -> None:
        lookahead = AlignmentRules.of(self.options.properties).lookahead
        took = offset.planned_ms - start.planned_ms
        if lookahead is None or start.batch < 3 or lookahead >= 2 * took or "lookahead" in self._warned:
            return
        self._warned.add("lookahead")
        text = "flink.watermark.lookahead.millis (%s) is below twice the time of a batch (%s ms): on live data such a job never catches up"
        LOG.warning(text, lookahead, took)

    def _probe(self, query: str) -> str:
        token = self._probes.setdefault(query, _random())
        self.store.plant_probe(query, token)
        return token


def name_of(stream: str) -> str:
    """The name of a stream given by name or ARN (arn:aws:kinesis:region:account:stream/name)."""
    return stream.rpartition("/")[2] if stream.startswith("arn:") else stream


def _random() -> str:
    return uuid.uuid4().hex[:12]
