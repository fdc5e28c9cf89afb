"""Batches whose reads fail: they return what was read, the next ones come later, and nothing is lost or repeated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recordpublisher.fetcher.pipeline.retention_gaps import ShardObservation
from recordpublisher.plugins.spark.source.claims import ReadClaim, ShardRead
from recordpublisher.plugins.spark.source.task_plans import MAX_DOUBLINGS
from recordpublisher.publishers.errors import OutageError, TransientError

from fakes.spark.queries import query, two_shards
from fakes.spark.simulated_kinesis import SimulatedKinesis

REFUSED = TransientError("GetRecords", "ConnectionError", "refused")


@pytest.fixture
def kinesis() -> SimulatedKinesis:
    return two_shards()


def batches_for(job, seconds: int) -> int:
    """How many batches are planned in this time."""
    until, before = job.kinesis.clock.ms + seconds * 1000, len(job.log)
    while job.kinesis.clock.ms < until:
        if not job.batch():
            job.kinesis.clock.ms += 1000
    return len(job.log) - before


def run_on(job) -> None:
    """For longer than any pause in an outage."""
    batches_for(job, 20)


def test_reads_go_on_after_an_outage_and_it_is_warned_of_once(kinesis, tmp_path, caplog):
    job = query(kinesis, tmp_path)
    job.batch()
    kinesis.shards["s/a"].times.append(5)
    kinesis.failure = REFUSED
    assert batches_for(job, 300) > 1
    outage = job.planner.figures()["outage"]
    assert (outage["service"], outage["error"][-42:]) == (
        "Kinesis",
        "GetRecords failed with ConnectionError: refused"[-42:],
    )
    kinesis.failure = None
    run_on(job)
    assert job.planner.outage is None
    assert sorted(job.delivered()) == sorted(job.expected())
    name = f"query {job.last.query} of s: "
    assert [line[: len(name) + 24] for line in caplog.messages if "calls to Kinesis" in line] == [
        f"{name}calls to Kinesis have fa",
        f"{name}calls to Kinesis succeed",
    ]


def test_the_next_batch_waits_for_the_pause_after_failed_reads(kinesis, tmp_path):
    job = query(kinesis, tmp_path)
    job.batch()
    kinesis.shards["s/a"].times.append(5)
    job.planner.planner._reads.note = lambda offset, claims: frozenset()
    job.planner.planner._reads._noted_at, job.planner.planner._reads._pause = kinesis.clock.monotonic(), 5.0
    assert not job.batch()
    kinesis.clock.ms += 5_000
    assert job.batch()


def test_past_the_longest_outage_the_query_fails_with_call_and_shard(kinesis, tmp_path):
    job = query(kinesis, tmp_path)
    job.batch()
    kinesis.failure = REFUSED
    with pytest.raises(
        OutageError,
        match=r"^calls to Kinesis have failed since .*, for longer than maxOutage \(900 s\): s/[ab]: GetRecords failed",
    ):
        batches_for(job, 1000)


def test_a_window_in_which_only_some_shards_fail_delays_no_batch(kinesis, tmp_path):
    job = query(kinesis, tmp_path)
    healthy = kinesis.read

    def read(starts, bounds, sink, publisher, **more):
        result = healthy(starts, bounds, sink, publisher, **more)
        failed = {
            key: replace(result.shards[key], seen=ShardObservation(failure=str(REFUSED)))
            for key in result.shards
            if key == "s/b"
        }
        return replace(result, shards={**result.shards, **failed})

    kinesis.shards["s/b"].times.clear()
    kinesis.read = read
    job.batch()
    job.kinesis.shards["s/a"].times.append(5)
    before = kinesis.clock.ms
    assert job.batch()
    assert kinesis.clock.ms - before < 1000
    assert job.planner.outage is not None


def test_a_service_that_never_answers_is_an_outage_after_the_longest_window(kinesis, tmp_path):
    job = query(kinesis, tmp_path)
    kinesis.empty_seconds = {"s/a": 10**6, "s/b": 10**6}
    kinesis.read = without_responses(kinesis.read)
    for _ in range(MAX_DOUBLINGS + 1):
        assert job.planner.outage is None
        assert job.batch()
    job.batch()
    assert "no read got a response" in job.planner.figures()["outage"]["error"]


def without_responses(read):
    def silent(*arguments, **more):
        result = read(*arguments, **more)
        unanswered = {key: replace(each, seen=ShardObservation()) for key, each in result.shards.items()}
        return replace(result, shards=unanswered)

    return silent


def test_a_claim_keeps_the_failure_of_its_read(kinesis, tmp_path):
    job = query(kinesis, tmp_path)
    job.batch()
    state = job.last.shards["s/a"].state
    claim = ReadClaim({"s/a": ShardRead(state, state, seen=ShardObservation(failure="GetRecords failed"))}, began_ms=1)
    assert ReadClaim.from_bytes(claim.to_bytes()) == claim
