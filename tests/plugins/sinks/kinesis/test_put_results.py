"""The results of a PutRecords call, record by record (K2)."""

from dataclasses import replace

from recordpublisher.plugins.sinks.kinesis.pending_records import PendingRecord
from recordpublisher.plugins.sinks.kinesis.put_results import (
    THROTTLED,
    ShardBatch,
    classify_results,
    results_of_failed_call,
)
from recordpublisher.plugins.sinks.kinesis.shard_queues import ANY_SHARD, TargetShardQueue
from recordpublisher.plugins.sinks.kinesis.shard_rate import ShardRateLimit
from recordpublisher.plugins.sinks.kinesis.sink_settings import KinesisSinkSettings
from recordpublisher.publishers.errors import ThrottledError, TransientError
from recordpublisher.publishers.kinesis.ports import PutResult
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.retry import RetryPolicy
from recordpublisher.publishers.shards import HashRange, Shard

DEFAULTS = KinesisSinkSettings.of(Properties())
LIMITS = replace(DEFAULTS, retries=RetryPolicy(3, 100, 2_000, 1.5))
TAKEN = PutResult(shard_id="a")
FAILED = PutResult(error_code="InternalFailure", error_message="try again")
THROTTLE = PutResult(error_code=THROTTLED, error_message="slow down")


def a_batch(count, shard="a"):
    records = [PendingRecord(str(number).encode(), "k", None, 2) for number in range(count)]
    return ShardBatch(TargetShardQueue(Shard("s", shard), ShardRateLimit(1_000, 2**20)), records, 0.0)


def data(records):
    return [one.data for one in records]


def test_a_call_without_errors_acknowledges_every_record():
    batch = a_batch(2)
    outcome = classify_results(batch, [TAKEN, TAKEN], LIMITS, 0.0)
    assert outcome.acknowledged == batch.records
    assert not outcome.to_retry
    assert not outcome.misrouted


def test_only_failed_records_are_retried():
    outcome = classify_results(a_batch(4), [TAKEN, FAILED, TAKEN, THROTTLE], LIMITS, 0.0)
    assert data(outcome.acknowledged) == [b"0", b"2"]
    assert data(outcome.to_retry) == [b"1", b"3"]
    assert outcome.throttles == 1


def test_retries_are_bounded_for_each_record():
    batch = a_batch(1)
    for _ in range(3):
        assert classify_results(batch, [FAILED], LIMITS, 0.0).to_retry
    outcome = classify_results(batch, [FAILED], LIMITS, 0.0)
    assert not outcome.to_retry
    assert [(one.error_code, one.error_message) for one in outcome.given_up] == [("InternalFailure", "try again")]


def test_a_record_is_given_up_when_it_has_failed_for_the_longest_outage():
    batch = a_batch(1)
    for minute in range(15):
        assert classify_results(batch, [FAILED], DEFAULTS, 60.0 * minute).to_retry
    assert classify_results(batch, [FAILED], DEFAULTS, 900.0).given_up


def test_throttling_costs_a_retry_only_while_the_shard_takes_nothing():
    batch = a_batch(2)
    for _ in range(20):
        assert classify_results(batch, [TAKEN, THROTTLE], LIMITS, 0.0).to_retry
    assert [bool(classify_results(batch, [THROTTLE, THROTTLE], LIMITS, 0.0).given_up) for _ in range(4)] == [
        False,
        False,
        False,
        True,
    ]


def test_an_internal_failure_always_costs_a_retry():
    batch = a_batch(2)
    given_up = [bool(classify_results(batch, [TAKEN, FAILED], LIMITS, 0.0).given_up) for _ in range(4)]
    assert given_up == [False, False, False, True]


def test_records_taken_by_another_shard_than_expected_are_misrouted():
    batch = a_batch(3)
    outcome = classify_results(batch, [TAKEN, PutResult(shard_id="b"), FAILED], LIMITS, 0.0)
    assert outcome.misrouted == [(batch.records[1], "b")]
    assert outcome.acknowledged == batch.records[:2]


def test_without_an_expected_shard_nothing_is_misrouted():
    assert classify_results(a_batch(1, ANY_SHARD), [TAKEN], LIMITS, 0.0).misrouted == []


def test_where_keys_do_not_decide_only_a_shard_that_is_not_listed_is_unexpected():
    batch = a_batch(2)
    batch.queue.known_shards = {"a": HashRange(), "b": HashRange()}
    assert classify_results(batch, [PutResult(shard_id="a"), PutResult(shard_id="b")], LIMITS, 0.0).misrouted == []
    outcome = classify_results(batch, [PutResult(shard_id="a"), PutResult(shard_id="new")], LIMITS, 0.0)
    assert outcome.misrouted == [(batch.records[1], "new")]


def test_a_failed_call_fails_all_its_records():
    assert [one.error_code for one in results_of_failed_call(TransientError("PutRecords", "TimeoutError", "x"), 2)] == [
        "TimeoutError"
    ] * 2
    throttled = ThrottledError("PutRecords", "KMSThrottlingException", "x")
    assert [one.error_code for one in results_of_failed_call(throttled, 1)] == [THROTTLED]


def test_a_result_without_a_shard_and_without_an_error_code_is_no_success():
    batch = a_batch(2)
    outcome = classify_results(batch, [TAKEN, PutResult()], LIMITS, 0.0)
    assert data(outcome.acknowledged) == [b"0"]
    assert data(outcome.to_retry) == [b"1"]


def test_a_record_is_not_given_up_for_time_in_which_the_process_was_suspended():
    batch = a_batch(1)
    for now in (0.0, 3_600.0, 3_601.0):
        assert classify_results(batch, [FAILED], DEFAULTS, now).to_retry


def test_a_throttled_record_of_a_shard_that_takes_others_is_sent_again_also_without_retries():
    settings = KinesisSinkSettings.of(Properties({"flink.job.max.outage": 0}))
    assert classify_results(a_batch(2), [TAKEN, THROTTLE], settings, 0.0).to_retry
