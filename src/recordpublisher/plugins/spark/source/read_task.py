"""One task: read some shards, claim what was read, and only then hand it over; or hand over what was claimed before."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from recordpublisher.fetcher.pipeline.bounds import BoundedResult, Bounds, ShardOutcome
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.stores.ports import BatchId, ClaimStore
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import DataLossError, StateError
from recordpublisher.publishers.shards import Shard

from ..arrow_rows import ArrowRows
from .batch_claims import claim_name
from .batch_offset import ShardOffset
from .read_claim import ReadClaim, ShardReadRange

LOG = logging.getLogger("recordpublisher.spark")
REPLAY_SECONDS = 600.0
"""A replay that has not met its records by then fails its task, which Spark tries again."""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What the driver tells a task; pickled, without secrets. `probe` is the token that the task must see in the claim store.
    `publisher` reads a batch the first time, `again` every other time: a second subscription would take the first one over (F9, F10).
    `accepts_loss`: a replay goes on without claimed records that are past retention (S5).
    """

    batch: BatchId
    group: int
    shards: tuple[ShardOffset, ...]
    bounds: Bounds
    publisher: str
    again: str
    probe: str
    consumer_arns: Mapping[str, str]
    accepts_loss: bool = False

    @property
    def name(self) -> str:
        """The name of the task's claim."""
        return claim_name(self.group)

    @property
    def starts(self) -> dict[Shard, ShardState]:
        """Where each shard starts."""
        return {entry.shard: entry.state for entry in self.shards}


class ReadShards(Protocol):
    """How a task reads: the fetcher behind the worker's loop. `publisher` by name."""

    def __call__(
        self, shards: Mapping[Shard, ShardState], bounds: Bounds, sink: ArrowRows, publisher: str
    ) -> BoundedResult:
        """Read and wait for the end."""
        ...


@dataclass(slots=True)
class TaskRead:
    """Runs a plan. Takes the store, how to read, and the clock."""

    plan: TaskPlan
    store: ClaimStore
    read: ReadShards
    clock: Clock = SystemClock()  # noqa: RUF009 - has no state

    def rows(self) -> Iterator[Any]:
        """The rows as Arrow batches, the same for every attempt, action and restart.

        Raises: ConfigurationError when the driver's claim store is not seen here, StateError when a claim belongs to another plan,
        DataLossError when claimed records are no longer there.
        """
        self.store.see_probe(self.plan.batch.query, self.plan.probe)
        stored = self.store.get(self.plan.batch, self.plan.name)
        if stored is None:
            rows, claim, mine = self._read_and_claim()
            if mine:
                return rows.drain()
            LOG.info("%s of batch %s was claimed by another attempt", self.plan.name, self.plan.batch.batch)
        else:
            claim = ReadClaim.from_bytes(stored)
        return self._replay(claim).drain()

    def _read_and_claim(self) -> tuple[ArrowRows, ReadClaim, bool]:
        rows = ArrowRows()
        first = self.plan.publisher == self.plan.again or self._is_first()
        began = self.clock.now_ms()
        result = self.read(self.plan.starts, self.plan.bounds, rows, self.plan.publisher if first else self.plan.again)
        subscribes = first and self.plan.publisher != self.plan.again
        claim = self._claim(result, rows, subscribes, began).to_bytes()
        stored = self.store.put_if_absent(self.plan.batch, self.plan.name, claim)
        return rows, ReadClaim.from_bytes(stored), stored == claim

    def _is_first(self) -> bool:
        """Whether nobody began to read this group before: attempts, actions and restarts are told apart by a mark in the store."""
        taken = self.store.put_if_absent(self.plan.batch, f"{self.plan.name}.reader", (mine := _token()))
        return taken == mine

    def _claim(self, result: BoundedResult, rows: ArrowRows, subscribed: bool, began: int) -> ReadClaim:
        shards = {entry.key: _read_range(entry, result.shards[entry.key], rows, began) for entry in self.plan.shards}
        return ReadClaim(shards, subscribed)

    def _replay(self, claim: ReadClaim) -> ArrowRows:
        """Read the claimed records again, by polling: as many of each shard as were claimed, or to the tip when some are gone."""
        self._check_plan(claim)
        counts = {key: shard.records for key, shard in claim.shards.items() if shard.records}
        starts = {shard: state for shard, state in self.plan.starts.items() if shard.key in counts}
        rows = ArrowRows()
        if starts:
            bounds = Bounds(max_time=REPLAY_SECONDS, shard_limits=counts, stop_at_tip=True)
            self._read_again(starts, bounds, rows)
        for key in counts:
            self._check_same_rows(key, claim.shards[key], rows)
        return rows

    def _read_again(self, starts: Mapping[Shard, ShardState], bounds: Bounds, rows: ArrowRows) -> None:
        try:
            self.read(starts, bounds, rows, self.plan.again)
        except DataLossError as error:  # a shard is gone as a whole
            if not self.plan.accepts_loss:
                raise
            LOG.warning("%s; going on because flink.state.dataloss=CONTINUE", error)

    def _check_same_rows(self, key: str, claim: ShardReadRange, rows: ArrowRows) -> None:
        """Raises: DataLossError, unless the job goes on without what is past retention: then with the claimed rows that are left."""
        seen = (rows.counts.get(key, 0), rows.first.get(key), rows.last.get(key))
        if seen == (claim.records, claim.first, claim.last):
            return
        error = DataLossError(
            f"{key}: {claim.records} records from {claim.first} to {claim.last} were claimed, but reading them again gave {seen[0]} "
            f"from {seen[1]} to {seen[2]}; are they past the stream's retention? Set flink.state.dataloss=CONTINUE to go on without them"
        )
        if not self.plan.accepts_loss:
            raise error
        left = rows.keep_until(key, claim.last)
        LOG.error("%s; going on because flink.state.dataloss=CONTINUE, with %s of them", error, left)

    def _check_plan(self, claim: ReadClaim) -> None:
        planned = {entry.key: entry.state for entry in self.plan.shards}
        if {key: shard.start for key, shard in claim.shards.items()} != planned:
            raise StateError(
                f"the claim {self.plan.name} of {self.plan.batch} names other shards or starts than the plan: "
                f"{sorted(claim.shards)} instead of {sorted(planned)}; every query needs a metadataLocation of its own"
            )


def _read_range(entry: ShardOffset, outcome: ShardOutcome, rows: ArrowRows, began: int) -> ShardReadRange:
    return ShardReadRange(
        start=entry.state,
        end=outcome.state,
        records=rows.counts.get(entry.key, 0),
        first=rows.first.get(entry.key),
        last=rows.last.get(entry.key),
        at_tip=outcome.at_tip,
        past_event_time=outcome.past_event_time,
        next_watermark=outcome.next_watermark,
        silent_ms=outcome.silent_ms,
        began_ms=began,
        tip_seen_ms=outcome.tip_seen_ms,
        behind_ms=outcome.millis_behind_latest,
        children=outcome.children,
    )


def _token() -> bytes:
    return uuid.uuid4().hex.encode()
