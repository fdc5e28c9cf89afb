"""An answer, record by record (K2)."""

from recordpublisher.plugins.sinks.kinesis.pending_record import PendingRecord
from recordpublisher.plugins.sinks.kinesis.put_records.request import ShardBatch
from recordpublisher.plugins.sinks.kinesis.put_records.results import (
    THROTTLED,
    classify_results,
    results_of_failed_call,
)
from recordpublisher.plugins.sinks.kinesis.rate_control import ShardRateLimit
from recordpublisher.plugins.sinks.kinesis.shard_queues.shard_map import ANY_SHARD
from recordpublisher.plugins.sinks.kinesis.shard_queues.shard_queue import ShardQueue
from recordpublisher.publishers.errors import ThrottledError, TransientError
from recordpublisher.publishers.kinesis.ports import PutResult
from recordpublisher.publishers.shards import Shard

TAKEN = PutResult(shard_id="a")
REFUSED = PutResult(error_code="InternalFailure", error_message="sorry")
SLOW = PutResult(error_code=THROTTLED, error_message="slow down")


def a_share(count, shard="a"):
    records = [PendingRecord(str(number).encode(), "k", None, 2) for number in range(count)]
    return ShardBatch(ShardQueue(Shard("s", shard), ShardRateLimit(1_000, 2**20)), records, 0.0)


def data(records):
    return [one.data for one in records]


def test_everything_taken():
    share = a_share(2)
    verdict = classify_results(share, [TAKEN, TAKEN], 3)
    assert verdict.acknowledged == share.records
    assert not verdict.again
    assert not verdict.strays


def test_refused_records_go_again_one_by_one():
    verdict = classify_results(a_share(4), [TAKEN, REFUSED, TAKEN, SLOW], 3)
    assert data(verdict.acknowledged) == [b"0", b"2"]
    assert data(verdict.again) == [b"1", b"3"]
    assert verdict.throttles == 1


def test_retries_are_bounded_for_each_record():
    share = a_share(1)
    for _ in range(3):
        assert classify_results(share, [REFUSED], 3).again
    verdict = classify_results(share, [REFUSED], 3)
    assert not verdict.again
    assert [(one.error_code, one.error_message) for one in verdict.given_up] == [("InternalFailure", "sorry")]


def test_a_throttle_costs_a_retry_only_while_the_shard_takes_nothing():
    share = a_share(2)
    for _ in range(20):
        assert classify_results(share, [TAKEN, SLOW], 3).again
    assert [bool(classify_results(share, [SLOW, SLOW], 3).given_up) for _ in range(4)] == [False, False, False, True]


def test_an_internal_failure_costs_one_in_any_case():
    share = a_share(2)
    given_up = [bool(classify_results(share, [TAKEN, REFUSED], 3).given_up) for _ in range(4)]
    assert given_up == [False, False, False, True]


def test_records_in_another_shard_than_predicted_are_told():
    share = a_share(3)
    verdict = classify_results(share, [TAKEN, PutResult(shard_id="b"), REFUSED], 3)
    assert verdict.strays == [(share.records[1], "b")]
    assert verdict.acknowledged == share.records[:2]


def test_where_nothing_is_predicted_nothing_strays():
    assert classify_results(a_share(1, ANY_SHARD), [TAKEN], 3).strays == []


def test_a_call_that_fails_refuses_all_its_records():
    assert [one.error_code for one in results_of_failed_call(TransientError("PutRecords", "TimeoutError", "x"), 2)] == [
        "TimeoutError"
    ] * 2
    throttled = ThrottledError("PutRecords", "KMSThrottlingException", "x")
    assert [one.error_code for one in results_of_failed_call(throttled, 1)] == [THROTTLED]
