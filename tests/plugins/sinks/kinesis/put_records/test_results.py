"""An answer, record by record (K2)."""

from recordpublisher.plugins.sinks.kinesis.pending_record import Outgoing
from recordpublisher.plugins.sinks.kinesis.put_records.request import Share
from recordpublisher.plugins.sinks.kinesis.put_records.results import THROTTLED, refused_by, verdict_of
from recordpublisher.plugins.sinks.kinesis.rate_control import Pace
from recordpublisher.plugins.sinks.kinesis.shard_queues.shard_map import ANYWHERE
from recordpublisher.plugins.sinks.kinesis.shard_queues.shard_queue import Lane
from recordpublisher.publishers.errors import ThrottledError, TransientError
from recordpublisher.publishers.kinesis.ports import PutResult
from recordpublisher.publishers.shards import Shard

TAKEN = PutResult(shard_id="a")
REFUSED = PutResult(error_code="InternalFailure", error_message="sorry")
SLOW = PutResult(error_code=THROTTLED, error_message="slow down")


def a_share(count, shard="a"):
    records = [Outgoing(str(number).encode(), "k", None, 2) for number in range(count)]
    return Share(Lane(Shard("s", shard), Pace(1_000, 2**20)), records, 0.0)


def data(records):
    return [one.data for one in records]


def test_everything_taken():
    share = a_share(2)
    verdict = verdict_of(share, [TAKEN, TAKEN], 3)
    assert verdict.acknowledged == share.records
    assert not verdict.again
    assert not verdict.strays


def test_refused_records_go_again_one_by_one():
    verdict = verdict_of(a_share(4), [TAKEN, REFUSED, TAKEN, SLOW], 3)
    assert data(verdict.acknowledged) == [b"0", b"2"]
    assert data(verdict.again) == [b"1", b"3"]
    assert verdict.throttles == 1


def test_retries_are_bounded_for_each_record():
    share = a_share(1)
    for _ in range(3):
        assert verdict_of(share, [REFUSED], 3).again
    verdict = verdict_of(share, [REFUSED], 3)
    assert not verdict.again
    assert [(one.error_code, one.error_message) for one in verdict.given_up] == [("InternalFailure", "sorry")]


def test_a_throttle_costs_a_retry_only_while_the_shard_takes_nothing():
    share = a_share(2)
    for _ in range(20):
        assert verdict_of(share, [TAKEN, SLOW], 3).again
    assert [bool(verdict_of(share, [SLOW, SLOW], 3).given_up) for _ in range(4)] == [False, False, False, True]


def test_an_internal_failure_costs_one_in_any_case():
    share = a_share(2)
    given_up = [bool(verdict_of(share, [TAKEN, REFUSED], 3).given_up) for _ in range(4)]
    assert given_up == [False, False, False, True]


def test_records_in_another_shard_than_predicted_are_told():
    share = a_share(3)
    verdict = verdict_of(share, [TAKEN, PutResult(shard_id="b"), REFUSED], 3)
    assert verdict.strays == [(share.records[1], "b")]
    assert verdict.acknowledged == share.records[:2]


def test_where_nothing_is_predicted_nothing_strays():
    assert verdict_of(a_share(1, ANYWHERE), [TAKEN], 3).strays == []


def test_a_call_that_fails_refuses_all_its_records():
    assert [one.error_code for one in refused_by(TransientError("PutRecords", "TimeoutError", "x"), 2)] == [
        "TimeoutError"
    ] * 2
    throttled = ThrottledError("PutRecords", "KMSThrottlingException", "x")
    assert [one.error_code for one in refused_by(throttled, 1)] == [THROTTLED]
