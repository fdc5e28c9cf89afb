"""One task of a batch: it reads, stores a claim (what it has read), and then returns the rows. `task_plans.py` makes the tasks."""

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from recordpublisher.consumer.deserialization import Deserializer
from recordpublisher.fetcher.pipeline.bounded_runs import BoundedResult, Bounds, EndReason, ShardOutcome
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.stores.spark_read_claims import ReadClaimStore
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import (
    DataLossError,
    RetriesExhaustedError,
    StateError,
    StreamNotFoundError,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import ALL_RETRIES, RECORD_PUBLISHER
from recordpublisher.publishers.safe_text import few_of
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.skipped_records_log import log_left_out

from ..arrow_rows import ArrowRows, ReusedMemory
from ..efo_consumers import task_properties
from ..options.spark_options import SparkOptions
from ..outages import OutageWatch
from ..python_worker import worker_loop
from ..row_columns import RowColumns
from .claims import ReadClaim, ShardRead
from .offset import ShardOffset
from .task_plans import TaskPlan

LOG = logging.getLogger("recordpublisher.spark")


T = TypeVar("T")


ENDLESS = 2**31


REPLAY_SECONDS = 600.0
"""How long a replay may find no record before it fails its task (seconds). Spark then retries the task.

A replay reads records again that an earlier attempt has claimed. The time of an outage does not count.
"""


REPLAY_WINDOW_SECONDS = 10.0
"""How often a replay checks whether the service is unreachable (seconds)."""


class ReadShards(Protocol):
    """A function that reads shards into `sink`, within `bounds` and with the named publisher, and waits for the end.

    A replay (`is_replay`) does not look for records past retention, because it compares the records that it finds with the claim.
    """

    def __call__(
        self,
        shards: Mapping[Shard, ShardState],
        bounds: Bounds,
        sink: ArrowRows,
        publisher: str,
        *,
        is_replay: bool = False,
    ) -> BoundedResult:
        """Read the shards. Return the position of each shard afterwards."""


def shard_reader(
    options: SparkOptions, consumer_arns: Mapping[str, str], values: Deserializer[Any] | None = None
) -> ReadShards:
    """Return the function with which a task reads. It uses a fetcher on this process's event loop.

    The fetcher's clients stay open from batch to batch.

    - `consumer_arns`: the ARN of each stream's fan-out consumer, by property key.
    - `values`: a deserializer that was made from the properties of `options` before, or None to make one.
    """
    # Imported here because the driver, which makes plans for tasks, needs no fetcher.
    from recordpublisher.plugins.runtime.bounded_reader import BoundedReader

    properties = with_endless_retries(task_properties(options.properties, consumer_arns))
    job = tuple(sorted(properties.items()))

    def read(
        shards: Mapping[Shard, ShardState], bounds: Bounds, sink: ArrowRows, publisher: str, *, is_replay: bool = False
    ) -> BoundedResult:
        loop = worker_loop()
        # A replay of a fan-out job polls, and so needs no AWS SDK: 0.3 s of CPU less in each worker after a kill.
        named = properties.merged({RECORD_PUBLISHER.key: publisher})
        reader = loop.cached((publisher, job), lambda: BoundedReader(named, publisher, deserializer=values))
        result = loop.run(reader.read(shards, sink, bounds, is_replay=is_replay))
        loop.freeze_heap()
        return result

    return read


def with_endless_retries(properties: Properties) -> Properties:
    """Return the properties for a read that retries failed calls until its time is over. A later task reads the missing records."""
    return properties.merged({retries.max_retries.key: ENDLESS for retries in ALL_RETRIES})


@dataclass(slots=True)
class TaskRead:
    """Carries out the plan of a task: reads with the function `read`, and stores a claim (what it has read) in `store`.

    If the store has an outage, the task waits, because no row may be returned without a claim. If Kinesis has an outage, the first read
    ends with the records that it has, and a replay waits. A replay is a read of records that an earlier attempt has claimed.
    """

    plan: TaskPlan
    store: ReadClaimStore
    read: ReadShards
    clock: Clock = SystemClock()  # noqa: RUF009 - has no state
    sleep: Callable[[float], None] = time.sleep
    columns: RowColumns = field(default_factory=RowColumns)
    memory: ReusedMemory = field(default_factory=ReusedMemory)
    _outages: OutageWatch = field(init=False)

    def __post_init__(self) -> None:
        self._outages = OutageWatch(self.plan.max_outage_ms, self.clock)

    def rows(self) -> Iterator[Any]:
        """Return the rows as Arrow batches. They are the same for every attempt, action and restart.

        Raises:

        - ConfigurationError if the driver's claim store is not visible here.
        - StateError if a claim belongs to another plan.
        - DataLossError if claimed records are no longer in the stream.
        - StreamNotFoundError if the stream was deleted.
        - OutageError if a service was unreachable for too long.
        """
        plan = self.plan
        stored = self._stored(lambda: self.store.get(plan.batch, plan.name, plan.store_token))
        if stored is None:
            rows, claim, is_ours = self._read_and_claim()
            if is_ours:
                return rows.drain()
            # Another attempt was faster. Its claim counts, and the rows just read are dropped.
            LOG.info(
                "another attempt of %s was faster, so this attempt drops its rows and reads the records of that attempt",
                plan.where,
            )
        else:
            claim = ReadClaim.from_bytes(stored)
        return self._replay(claim).drain()

    def _read_and_claim(self) -> tuple[ArrowRows, ReadClaim, bool]:
        """Read the shards, and store a claim if no other attempt of the task has stored one.

        Return the rows that were read, the claim in the store, and whether it is this attempt's claim.
        """
        rows = ArrowRows(self.columns, memory=self.memory)
        plan = self.plan
        publisher, bounds, may_subscribe = plan.publisher, plan.bounds, plan.publisher != plan.replay_publisher
        if may_subscribe and not self._reserve_subscription():
            # The read polls and ends at the tip. A subscription would read for its whole window, so after a kill the first rows would
            # come 5 s later.
            publisher, bounds = plan.replay_publisher, replace(bounds, stop_at_tip=True)
        began_ms = self.clock.now_ms()
        result = self.read(plan.start_states, bounds, rows, publisher)
        skipped = {key: outcome.seen.skipped for key, outcome in result.shards.items()}
        log_left_out(LOG, plan.where, skipped)
        # The columns are built first, so that a bad record fails the task before its claim is stored.
        rows.build()
        # The claim says that there was a subscription even if another attempt has made it: the next batch must wait 5 s after it (F9).
        claim = self._claim_of(result, rows, may_subscribe, began_ms)
        content = claim.to_bytes()
        stored = self._stored(lambda: self.store.put_if_absent(plan.batch, plan.name, content))
        return (rows, claim, True) if stored == content else (rows, ReadClaim.from_bytes(stored), False)

    def _reserve_subscription(self) -> bool:
        """Reserve the batch's one subscription to this task's shards. Return False if another attempt, action or run has reserved it."""
        token, name = uuid.uuid4().hex.encode(), f"{self.plan.name}.reader"
        return self._stored(lambda: self.store.put_if_absent(self.plan.batch, name, token)) == token

    def _stored(self, call: Callable[[], T]) -> T:
        """Make a call to the store of claims, and return its result. If the store has an outage, wait until it is over."""
        return self._outages.wait_out(call, self.sleep)

    def _claim_of(self, result: BoundedResult, rows: ArrowRows, subscribed: bool, began_ms: int) -> ReadClaim:
        # A run drops the shards of a stream that is deleted while it is read.
        deleted = [entry.shard.stream for entry in self.plan.shards if entry.key not in result.shards]
        if deleted:
            raise StreamNotFoundError(deleted[0])
        reads = {entry.key: _read_of(entry, result.shards[entry.key], rows) for entry in self.plan.shards}
        return ReadClaim(reads, began_ms, subscribed)

    def _replay(self, claim: ReadClaim) -> ArrowRows:
        """Read the claimed records again, by polling. If some of them are gone, read up to the tip."""
        self._check_plan(claim)
        counts = {key: read.records for key, read in claim.shards.items() if read.records}
        states, rows = self.plan.start_states, self._rows_again()
        try:
            self._read_again(states, counts, rows)
        except DataLossError as error:  # A whole shard is past retention.
            if not self.plan.accepts_loss:
                raise
            LOG.warning(
                "%s; the other shards are read one at a time, because flink.state.dataloss=CONTINUE", error.loss
            )
            rows = self._rows_again()  # Start again, because it is not known how far the other shards were read.
            for shard, state in states.items():
                with contextlib.suppress(DataLossError):
                    self._read_again({shard: state}, counts, rows)
        for key in counts:
            self._check_same_rows(key, claim.shards[key], rows)
        return rows

    def _rows_again(self) -> ArrowRows:
        return ArrowRows(self.columns, may_drop=self.plan.accepts_loss, memory=self.memory)

    def _read_again(self, states: Mapping[Shard, ShardState], counts: Mapping[str, int], rows: ArrowRows) -> None:
        """Read `counts` records of each shard into `rows`, or up to its tip if there are fewer. Long reads are divided into windows.

        Raises:

        - OutageError if Kinesis was unreachable for too long.
        - RetriesExhaustedError if reads find neither more records nor the tip.
        - DataLossError if a whole shard is past retention.
        """
        until, found = self.clock.monotonic() + REPLAY_SECONDS, len(rows)
        left = {shard.key: counts.get(shard.key, 0) for shard in states}
        while states := {shard: state for shard, state in states.items() if left.get(shard.key)}:
            limits = {shard.key: left[shard.key] for shard in states}
            bounds = Bounds(max_time=REPLAY_WINDOW_SECONDS, shard_limits=limits, stop_at_tip=True)
            result = self.read(states, bounds, rows, self.plan.replay_publisher, is_replay=True)
            is_failing = self._note_failures(result)
            if result.reason is not EndReason.MAX_TIME:
                return
            if is_failing or len(rows) > found:
                until, found = self.clock.monotonic() + REPLAY_SECONDS, len(rows)
            left = {key: counts[key] - rows.counts.get(key, 0) for key in limits if not _is_at_end(key, result)}
            states = {outcome.shard: outcome.state for outcome in result.shards.values()}
            if any(left.values()) and self.clock.monotonic() >= until:
                missing = few_of([f"{count} of {key}" for key, count in left.items() if count])
                raise RetriesExhaustedError(
                    f"{self.plan.where} must read again the records that an earlier "
                    "attempt has read (claimed), and has found none of them for "
                    f"{REPLAY_SECONDS:.0f} s. Not found yet: {missing}. They may still be in the stream, because the reads have not "
                    "reached its tip: start the query again"
                )

    def _note_failures(self, result: BoundedResult) -> bool:
        """Report to `OutageWatch` which shards could not be read. Return whether there are any."""
        for key, outcome in result.shards.items():
            if outcome.seen.failure is None:
                self._outages.on_success(key)
            else:
                self._outages.on_failure(f"{key}: {outcome.seen.failure}", key)
        return self._outages.longest is not None

    def _check_same_rows(self, key: str, claimed: ShardRead, rows: ArrowRows) -> None:
        """Compare the rows of a shard with its claim. If rows are missing and the job accepts that, keep the rows that are left.

        Raises: DataLossError if the rows differ, and the job does not accept that.
        """
        found = (rows.counts.get(key, 0), rows.first.get(key), rows.last.get(key))
        if found == (claimed.records, claimed.first, claimed.last):
            return
        error = DataLossError(
            f"{key}: {claimed.records} records from {claimed.first} to {claimed.last} were read by an earlier attempt, but reading them "
            f"again gave {f'{found[0]} from {found[1]} to {found[2]}' if found[0] else 'none'}; they may be past the stream's retention",
        )
        if not self.plan.accepts_loss:
            raise error
        left = rows.keep_until(key, claimed.last)
        LOG.error(
            "%s; the task continues because flink.state.dataloss=CONTINUE, with %s of the claimed records",
            error.loss,
            left,
        )

    def _check_plan(self, claim: ReadClaim) -> None:
        planned = {entry.key: entry.state for entry in self.plan.shards}
        if not claim.is_of(planned):
            raise StateError(
                "another query seems to use this metadataLocation: every query needs a metadataLocation of its own. "
                f"The stored record of what {self.plan.where} has read (its claim) names other shards or starts than the plan: "
                f"{few_of(sorted(claim.shards))} instead of {few_of(sorted(planned))}"
            )


def _is_at_end(key: str, result: BoundedResult) -> bool:
    outcome = result.shards.get(key)
    return outcome is not None and (outcome.seen.at_tip or outcome.state.ended)


def _read_of(entry: ShardOffset, outcome: ShardOutcome, rows: ArrowRows) -> ShardRead:
    return ShardRead(
        start=entry.state,
        end=outcome.state,
        records=rows.counts.get(entry.key, 0),
        bytes=rows.bytes.get(entry.key, 0),
        first=rows.first.get(entry.key),
        last=rows.last.get(entry.key),
        seen=outcome.seen,
    )
