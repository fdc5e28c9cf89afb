"""Two queries with one fan-out consumer: what a task sees of the other one goes into the claim, and is counted over batches (F10)."""

from __future__ import annotations

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import BoundedResult, Bounds, EndReason, ShardOutcome
from recordpublisher.fetcher.pipeline.retention_gaps import ShardObservation
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.local import Delays, serve_in_thread
from recordpublisher.plugins.runtime.bounded_reader import BoundedReader
from recordpublisher.plugins.sinks.callback import MemorySink
from recordpublisher.plugins.spark.efo_consumers import register_consumers, task_properties
from recordpublisher.publishers.errors import ConsumerError
from recordpublisher.publishers.fanout.publisher import MAX_PREEMPTIONS, MAX_REFUSALS
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from fakes.spark.queries import FAN_OUT, query
from fakes.spark.simulated_kinesis import SimulatedKinesis

WARNED = (
    "the subscriptions to s/a are taken over or refused in batch after batch. If another query or job uses the consumer c, give each a "
    "consumer of its own"
)
TAKEN_OVER = ShardObservation(taken_over=1, behind_ms=0)
REFUSED = ShardObservation(refused=1)
"""A window that got no subscription has no response."""


class ContendedKinesis(SimulatedKinesis):
    """Each read of a batch sees this of another caller, and no records."""

    disturbed: ShardObservation | None = None

    def read(self, starts, bounds, sink, publisher, *, is_replay=False):
        if self.disturbed is None:
            return super().read(starts, bounds, sink, publisher, is_replay=is_replay)
        self.clock.ms += 5_500
        outcomes = {shard.key: ShardOutcome(shard, state, seen=self.disturbed) for shard, state in starts.items()}
        return BoundedResult(EndReason.MAX_TIME, outcomes)


@pytest.fixture
def job(tmp_path):
    kinesis = ContendedKinesis()
    kinesis.add("a", [1])
    return query(kinesis, tmp_path, **FAN_OUT)


def run_batches(job, count: int) -> None:
    for _ in range(count):
        job.kinesis.shards["s/a"].times.append(1)
        done = len(job.rows) + 1
        while len(job.rows) < done:
            if not job.batch():  # which may have moved the clock
                job.kinesis.clock.ms += 1000


@pytest.mark.parametrize(("disturbed", "most"), [(TAKEN_OVER, MAX_PREEMPTIONS), (REFUSED, MAX_REFUSALS)])
def test_f10_what_happens_batch_after_batch_is_warned_of_and_then_ends_the_query(job, disturbed, most):
    run_batches(job, 1)
    job.kinesis.disturbed = disturbed
    run_batches(job, 2)
    assert "warnings" not in job.planner.figures()
    run_batches(job, most - 2)
    assert job.planner.figures()["warnings"] == [WARNED]
    with pytest.raises(ConsumerError, match=r"times in a row.* another job uses the consumer c"):
        run_batches(job, 1)


@pytest.mark.parametrize("disturbed", [TAKEN_OVER, REFUSED])
def test_a_subscription_that_nobody_takes_starts_the_count_anew(job, disturbed):
    run_batches(job, 1)
    for _ in range(5):
        job.kinesis.disturbed = disturbed
        run_batches(job, 4)
        job.kinesis.disturbed = None
        run_batches(job, 1)


def test_a_query_that_is_started_again_counts_anew(job):
    run_batches(job, 1)
    job.kinesis.disturbed = TAKEN_OVER
    run_batches(job, MAX_PREEMPTIONS)
    job.restart()
    run_batches(job, MAX_PREEMPTIONS - 1)


async def test_a_read_that_is_refused_has_seen_it():
    with serve_in_thread(delays=Delays(consumer=0)) as served:
        served.call(served.endpoint.account.create_stream, "s", 1)
        properties = Properties({**served.endpoint.properties(), **FAN_OUT})
        properties = task_properties(properties, register_consumers(["s"], properties))
        start = {Shard("s", "shardId-000000000000"): ShardState(StartingPosition.trim_horizon())}
        served.call(served.endpoint.stream("s").put, b"x", "key")
        reader = BoundedReader(properties, "EFO")
        first = await reader.read(start, MemorySink(), Bounds(max_records=1))
        second = await reader.read(start, MemorySink(), Bounds(max_time=1))  # within 5 s of the first subscription
        await reader.close()
    seen = [outcome.seen for result in (first, second) for outcome in result.shards.values()]
    assert [(one.taken_over, one.refused) for one in seen] == [(0, 0), (0, 1)]
    assert ShardObservation.from_json(seen[1].to_json()) == seen[1]
