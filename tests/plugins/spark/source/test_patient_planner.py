"""Planning while Kinesis or the store of claims is away: the old offset, a warning, and nothing lost or repeated."""

from __future__ import annotations

import functools

import pytest

from recordpublisher.plugins.spark.outages import UNANSWERED_MS
from recordpublisher.plugins.spark.source.patient_planner import ANSWER_SECONDS, NO_ANSWER_SECONDS, PatientPlanner
from recordpublisher.publishers.errors import (
    ConfigurationError,
    FatalKinesisError,
    OutageError,
    RetriesExhaustedError,
    StateError,
    StoreUnavailableError,
    TransientError,
)

from fakes.spark.queries import FAN_OUT, FROM_LATEST, options, two_shards
from fakes.spark.simulated_kinesis import ARRIVED, MemoryClaims, SimulatedKinesis
from fakes.spark.simulated_query import InlineCalls, NoAnswer, SimulatedQuery

REFUSED = TransientError("ListShards", "ConnectionError", "refused")
STORE_AWAY = StoreUnavailableError("PutObject at s3://b failed")
MAX_MS = 900_000


@pytest.fixture
def kinesis() -> SimulatedKinesis:
    return two_shards()


@pytest.fixture
def job(kinesis, tmp_path) -> SimulatedQuery:
    return SimulatedQuery(kinesis, MemoryClaims(), options(tmp_path))


def let_pass(job: SimulatedQuery, ms: int) -> None:
    """Let Spark call again and again for this time, once a second when nothing was planned."""
    until = job.kinesis.clock.ms + ms
    while job.kinesis.clock.ms < until:
        if not job.batch():
            job.kinesis.clock.ms += 1000


def run_on(job: SimulatedQuery) -> None:
    """For longer than any pause in an outage."""
    let_pass(job, 20_000)


def seconds_of(job: SimulatedQuery, call) -> float:
    before = job.kinesis.clock.ms
    call()
    return (job.kinesis.clock.ms - before) / 1000


def never_reached() -> ConfigurationError:
    """As a lister reports an endpoint that did not answer its first calls."""
    error = ConfigurationError("aws.endpoint", "http://wrong")
    error.__cause__ = RetriesExhaustedError("ListShards")
    error.__cause__.__cause__ = REFUSED
    return error


def caused_by(cause: Exception) -> TransientError:
    error = TransientError("ListShards", type(cause).__name__, "no")
    error.__cause__ = cause
    return error


def away(caplog) -> list[str]:
    return [line for line in caplog.messages if " have failed since " in line or " succeed again " in line]


def test_a_store_that_is_away_keeps_the_old_offset_and_is_warned_of_once(job, caplog):
    job.batch()
    planned = len(job.log)
    job.kinesis.shards["s/a"].times.append(5)
    job.store.failure = STORE_AWAY
    let_pass(job, 300_000)
    assert len(job.log) == planned
    assert job.planner.figures()["outage"]["error"] == "PutObject at s3://b failed"
    job.store.failure = None
    run_on(job)
    assert sorted(job.delivered()) == sorted(job.expected())
    assert "outage" not in job.planner.figures()
    assert [line.partition(" since")[0].partition(" of s: ")[2][:41] for line in away(caplog)] == [
        "calls to the store of claims have failed",
        "calls to the store of claims succeed agai",
    ]


def test_past_the_longest_outage_the_query_fails_and_names_it(job):
    job.batch()
    job.store.failure = STORE_AWAY
    let_pass(job, MAX_MS - 20_000)
    with pytest.raises(
        OutageError,
        match=r"^calls to the store of claims have failed since 2027-.*maxOutage \(900 s\): PutObject at s3",
    ):
        let_pass(job, 60_000)


def test_an_error_that_is_no_outage_ends_the_query_at_once(job):
    job.batch()
    job.store.failure = FatalKinesisError("GetItem", "AccessDeniedException", "no")
    with pytest.raises(FatalKinesisError):
        job.batch()


def test_a_query_that_starts_while_kinesis_is_away_begins_later(job, kinesis):
    kinesis.failure = REFUSED
    let_pass(job, 30_000)
    assert job.last.is_unlisted
    assert len(job.log) == 2
    kinesis.failure = None
    run_on(job)
    assert sorted(job.delivered()) == sorted(job.expected())


@pytest.mark.parametrize("restarts", [False, True])
def test_p3_latest_of_a_query_that_starts_while_kinesis_is_away_is_the_time_of_the_start(kinesis, tmp_path, restarts):
    job = SimulatedQuery(kinesis, MemoryClaims(), options(tmp_path, **FROM_LATEST))
    kinesis.clock.ms = ARRIVED + 2
    kinesis.failure = REFUSED
    let_pass(job, 30_000)
    if restarts:
        job.restart()
    let_pass(job, 30_000)
    kinesis.failure = None
    run_on(job)
    assert sorted(job.delivered()) == [("s/a", "3")]
    assert job.last.initial_start.timestamp_ms == ARRIVED + 2


def test_p3_latest_of_a_query_whose_first_call_has_no_answer_is_the_time_of_that_call(kinesis, tmp_path):
    job = SimulatedQuery(kinesis, MemoryClaims(), options(tmp_path, **FROM_LATEST))
    kinesis.clock.ms = ARRIVED + 2
    job.planner = PatientPlanner(job.planner.planner, NoAnswer(kinesis.clock), kinesis.clock.sleep)
    job.log.append(job.planner.initial_offset().to_json())
    assert kinesis.clock.ms > ARRIVED + 2
    job.restart()
    run_on(job)
    assert sorted(job.delivered()) == [("s/a", "3")]


def test_s5_a_shard_knows_the_time_that_latest_stands_for(kinesis, tmp_path):
    """So that records which came later, and pass retention before the first read, are not lost silently."""
    job = SimulatedQuery(kinesis, MemoryClaims(), options(tmp_path, **FROM_LATEST))
    began_ms = kinesis.clock.ms
    assert {entry.state.seen_ms for entry in job.planner.initial_offset().shards.values()} == {began_ms}


def test_a_first_plan_that_fails_is_a_batch_without_tasks(job, kinesis):
    job.log.append(job.planner.initial_offset().to_json())
    job.store.failure = STORE_AWAY
    job.batch()
    assert (job.last.batch, job.delivered()) == (0, [])
    job.store.failure = None
    run_on(job)
    assert sorted(job.delivered()) == sorted(job.expected())


def test_an_endpoint_that_was_never_reached_is_waited_for_and_its_setting_is_named(job, kinesis, caplog):
    kinesis.failure = never_reached()
    let_pass(job, 30_000)
    assert len(job.log) == 2
    assert "'aws.endpoint' is 'http://wrong'" in away(caplog)[0]
    kinesis.failure = None
    run_on(job)
    assert sorted(job.delivered()) == sorted(job.expected())


def test_an_endpoint_that_is_never_reached_ends_the_query_after_the_longest_outage(job, kinesis):
    kinesis.failure = never_reached()
    with pytest.raises(OutageError, match=r"calls to Kinesis have failed since .*'aws.endpoint' is 'http://wrong'"):
        let_pass(job, MAX_MS + 20_000)


@pytest.mark.parametrize("cause", [ConnectionRefusedError(111, "refused"), TimeoutError()], ids=repr)
def test_a_service_that_has_never_answered_ends_a_query_without_a_checkpoint_after_half_a_minute(job, kinesis, cause):
    kinesis.failure = never_reached()
    kinesis.failure.__cause__.__cause__ = caused_by(cause)
    before = kinesis.clock.ms
    with pytest.raises(OutageError, match=r"Kinesis has not been reached since .*: tried \d+ times; .*'http://wrong'"):
        let_pass(job, 40_000)
    assert UNANSWERED_MS <= kinesis.clock.ms - before < UNANSWERED_MS + 5_000


def test_a_slow_first_call_is_waited_for_since_it_may_have_an_answer_in_the_end(job, kinesis):
    slow = job.planner.planner
    job.planner = PatientPlanner(slow, NoAnswer(kinesis.clock), kinesis.clock.sleep)
    let_pass(job, 2 * UNANSWERED_MS)
    job.planner = PatientPlanner(slow, InlineCalls(), kinesis.clock.sleep)
    run_on(job)
    assert sorted(job.delivered()) == sorted(job.expected())


def test_a_slow_first_call_that_ends_without_an_answer_ends_a_query_without_a_checkpoint(job, kinesis):
    slow = job.planner.planner
    job.planner = PatientPlanner(slow, NoAnswer(kinesis.clock), kinesis.clock.sleep)
    let_pass(job, NO_ANSWER_SECONDS * 1000 + UNANSWERED_MS + 10_000)
    job.planner = PatientPlanner(slow, InlineCalls(), kinesis.clock.sleep)
    kinesis.failure = caused_by(TimeoutError())
    with pytest.raises(OutageError, match="Kinesis has not been reached since"):
        run_on(job)


def test_a_query_with_a_checkpoint_waits_for_a_service_that_has_not_answered_since_its_start(job, kinesis):
    job.batch()
    job.restart()
    kinesis.failure = caused_by(ConnectionRefusedError(111, "refused"))
    let_pass(job, 300_000)
    kinesis.failure = None
    run_on(job)
    assert sorted(job.delivered()) == sorted(job.expected())


def test_a_wrong_setting_ends_a_new_query_at_once(job, kinesis):
    kinesis.failure = ConfigurationError("aws.region", "nowhere")
    with pytest.raises(ConfigurationError):
        job.batch()


def test_a_query_that_starts_again_while_kinesis_is_away_checks_retention_later(job, kinesis):
    job.batch()
    kinesis.clock.ms += 25 * 3_600_000
    kinesis.failure = REFUSED
    job.restart()
    planned = len(job.log)
    let_pass(job, 30_000)
    assert len(job.log) == planned
    kinesis.failure = None
    run_on(job)
    assert sorted(job.delivered()) == sorted(job.expected())


def test_the_tasks_of_a_batch_just_planned_need_no_service(job):
    job.batch()
    job.kinesis.shards["s/a"].times.append(5)
    planned = job.planner.next_offset(job.last, None)
    job.store.failure = STORE_AWAY
    assert job.planner.partitions(job.last, planned)


def test_the_tasks_of_a_batch_from_before_a_restart_wait_for_the_store_and_planning_does_not(job):
    job.batch()
    before = job.rows[1]
    job.restart()
    job.store.failure = STORE_AWAY
    plans = job.tasks()
    assert job.planner.outage.service == "the store of claims"
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 5:
            job.store.failure = None

    job.rows_of = functools.partial(job.rows_of, sleep=sleep)
    assert before
    assert [row for plan in plans for row in job.rows_of(plan)] == before
    assert len(waits) == 5


def test_a_fan_out_batch_from_before_a_restart_polls(kinesis, tmp_path):
    job = SimulatedQuery(kinesis, MemoryClaims(), options(tmp_path, **FAN_OUT))
    job.batch()
    kinesis.shards["s/a"].times.append(9)
    while not job.batch() or job.last.waits:
        pass
    assert {plan.publisher for plan in job.tasks()} == {"EFO"}
    job.restart()
    assert {plan.publisher for plan in job.tasks()} == {"POLLING"}
    job.restart()
    job.store.failure = STORE_AWAY
    assert {plan.publisher for plan in job.tasks()} == {"POLLING"}


def test_a_batch_from_before_a_restart_fails_at_once_without_access_to_its_claims(job):
    job.batch()
    job.restart()
    job.store.failure = FatalKinesisError("GetItem", "AccessDeniedException", "no")
    with pytest.raises(FatalKinesisError):
        job.tasks()


def test_an_available_now_run_does_not_end_while_a_service_is_away(job, kinesis):
    kinesis.failure = REFUSED
    job.planner.prepare_available_now()
    for _ in range(5):
        assert seconds_of(job, job.batch) <= ANSWER_SECONDS + 1
    assert job.last.waits == 5
    kinesis.failure = None
    while job.batch():
        pass
    assert sorted(job.delivered()) == sorted(job.expected())


def test_an_available_now_run_ends_with_an_error_after_the_longest_outage(job, kinesis):
    kinesis.failure = REFUSED
    job.planner.prepare_available_now()
    with pytest.raises(OutageError, match="calls to Kinesis have failed since"):
        let_pass(job, MAX_MS + 20_000)


def test_an_available_now_run_that_begins_again_after_a_wait_reads_the_rest_once(job):
    job.planner.prepare_available_now()
    job.batch()
    job.store.failure = STORE_AWAY
    waiting = job.planner.next_offset(job.last, None)
    assert job.planner.partitions(job.last, waiting) == []
    assert (waiting.waits, waiting.plan) == (1, job.last.plan)
    job.log.append(waiting.to_json())
    job.store.failure = None
    job.restart()
    job.planner.prepare_available_now()
    job.kinesis.shards["s/a"].times.append(9)
    while job.batch():
        pass
    assert sorted(job.delivered()) == sorted(job.expected())


def test_a_call_without_an_answer_keeps_nobody_waiting_and_counts_as_an_outage(job):
    job.batch()
    clock = job.kinesis.clock
    job.planner = PatientPlanner(job.planner.planner, NoAnswer(clock), clock.sleep)
    began = job.kinesis.clock.ms
    while job.kinesis.clock.ms < began + NO_ANSWER_SECONDS * 1000:
        assert job.planner.outage is None
        assert seconds_of(job, job.batch) < 5
    assert "has not been answered" in job.planner.figures()["outage"]["error"]
    with pytest.raises(OutageError, match="has not been answered"):
        let_pass(job, 2 * MAX_MS)


def test_the_first_answer_of_a_process_waits_until_a_call_counts_as_an_outage(job):
    job.batch()
    clock = job.kinesis.clock
    job.planner = PatientPlanner(job.planner.planner, NoAnswer(clock), clock.sleep)
    took = seconds_of(job, lambda: job.planner.next_offset(job.last, None, is_first=True))
    assert NO_ANSWER_SECONDS <= took < NO_ANSWER_SECONDS + 5


def test_an_available_now_run_does_not_block_on_a_call_without_an_answer(job):
    job.batch()
    clock = job.kinesis.clock
    job.planner = PatientPlanner(job.planner.planner, NoAnswer(clock), clock.sleep)
    job.planner.prepare_available_now()
    assert seconds_of(job, job.batch) < 5
    assert job.last.waits == 1


def test_an_available_now_run_ends_although_a_shard_that_it_has_read_was_split_meanwhile(job):
    """The children begin after the start of the run, and their parent is read no further in it."""
    job.planner.prepare_available_now()
    job.batch()
    kinesis = job.kinesis
    kinesis.discovered = [*kinesis.discovered, kinesis.add("child", [7], ("a",))]
    kinesis.close("a", *kinesis.discovered[-1:])
    while job.batch():
        pass
    assert ("s/child", "1") not in job.delivered()


def test_a_batch_that_was_planned_after_another_one_is_refused_before_anything_is_read(job):
    job.batch()
    first = job.last
    job.kinesis.shards["s/a"].times.append(5)
    while not job.batch():
        pass
    job.kinesis.shards["s/a"].times.append(6)
    while not job.batch():
        pass
    with pytest.raises(StateError, match=r"the rows after batch 1 \(\w+\), and batch 3 was planned after another one"):
        job.planner.partitions(first, job.last)
