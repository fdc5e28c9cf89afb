from base64 import b64decode

import pytest

from recordpublisher.local import ManualClock, Quotas
from recordpublisher.local.account import Account, Throttle
from recordpublisher.local.errors import ApiError
from recordpublisher.local.stream import Stream

SHARD = "shardId-000000000000"
ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


@pytest.fixture(autouse=True)
def stream(account: Account) -> Stream:
    return account.create_stream("orders", 1)


def iterator(call, kind: str, **more: object) -> str:
    fields = {"StreamName": "orders", "ShardId": SHARD, "ShardIteratorType": kind, **more}
    return call("GetShardIterator", **fields)["ShardIterator"]


def data(response) -> list[str]:
    return [b64decode(record["Data"]).decode() for record in response["Records"]]


def read(call, kind: str, **more: object) -> list[str]:
    return data(call("GetRecords", ShardIterator=iterator(call, kind, **more)))


def test_the_five_iterator_types_start_at_their_positions(call, stream: Stream, clock: ManualClock):
    numbers = []
    for letter in "abc":
        numbers.append(stream.put(letter.encode(), "k"))
        clock.advance(1000)
    second = clock.now_ms() / 1000 - 2
    assert read(call, "TRIM_HORIZON") == ["a", "b", "c"]
    assert read(call, "AT_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[1]) == ["b", "c"]
    assert read(call, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[1]) == ["c"]
    assert read(call, "AT_TIMESTAMP", Timestamp=second) == ["b", "c"]
    assert read(call, "AT_TIMESTAMP", Timestamp=second + 0.001) == ["c"]
    latest = iterator(call, "LATEST")
    stream.put(b"d", "k")
    assert data(call("GetRecords", ShardIterator=latest)) == ["d"]


def test_a_timestamp_in_the_future_is_refused(call, clock: ManualClock):
    now = clock.now_ms() / 1000
    read(call, "AT_TIMESTAMP", Timestamp=now)
    with pytest.raises(ApiError, match="InvalidArgumentException: The timestampInMillis parameter cannot be greater"):
        read(call, "AT_TIMESTAMP", Timestamp=now + 0.001)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("AT_SEQUENCE_NUMBER", {}),
        ("AFTER_SEQUENCE_NUMBER", {}),
        ("AT_TIMESTAMP", {}),
        ("AT_SEQUENCE_NUMBER", {"StartingSequenceNumber": "1" * 56}),
        ("LATEST", {"StartingSequenceNumber": "1" * 56}),
    ],
)
def test_an_invalid_start_is_an_invalid_argument(call, kind: str, more: dict[str, str]):
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        iterator(call, kind, **more)


def test_reads_continue_with_the_next_iterator_until_the_tip(call, stream: Stream, clock: ManualClock):
    for letter in "abc":
        stream.put(letter.encode(), "k")
    clock.advance(700)
    first = call("GetRecords", ShardIterator=iterator(call, "TRIM_HORIZON"), Limit=2)
    second = call("GetRecords", ShardIterator=first["NextShardIterator"], Limit=2)
    third = call("GetRecords", ShardIterator=second["NextShardIterator"])
    assert [data(first), data(second), data(third)] == [["a", "b"], ["c"], []]
    assert [response["MillisBehindLatest"] for response in (first, second, third)] == [700, 0, 0]


def test_unread_records_of_the_same_millisecond_count_as_behind(call, stream: Stream):
    for letter in "ab":
        stream.put(letter.encode(), "k")
    assert call("GetRecords", ShardIterator=iterator(call, "TRIM_HORIZON"), Limit=1)["MillisBehindLatest"] == 1


def test_a_response_has_at_most_10_000_records(call, stream: Stream):
    for _ in range(10_001):
        stream.put(b"", "k")
    assert len(read(call, "TRIM_HORIZON")) == 10_000
    with pytest.raises(ApiError, match="ValidationException"):
        call("GetRecords", ShardIterator=iterator(call, "TRIM_HORIZON"), Limit=10_001)


def test_a_response_has_at_most_10_mib(call, stream: Stream):
    for _ in range(12):
        stream.put(bytes((1 << 20) - 1), "k")
    assert len(read(call, "TRIM_HORIZON")) == 10


def test_an_iterator_is_valid_for_five_minutes(call, clock: ManualClock):
    place = iterator(call, "LATEST")
    clock.advance(299_999)
    call("GetRecords", ShardIterator=place)
    clock.advance(1)
    with pytest.raises(ApiError, match="ExpiredIteratorException"):
        call("GetRecords", ShardIterator=place)


def test_all_iterators_can_be_made_to_expire_at_once(call, account: Account):
    place = iterator(call, "LATEST")
    account.faults.expire_iterators()
    with pytest.raises(ApiError, match="ExpiredIteratorException"):
        call("GetRecords", ShardIterator=place)
    read(call, "LATEST")


@pytest.mark.parametrize("place", ["garbage", "AAAA", "é"])
def test_an_unknown_iterator_is_an_invalid_argument(call, place: str):
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("GetRecords", ShardIterator=place)


def test_the_last_read_of_a_closed_shard_has_its_children(call, stream: Stream):
    stream.put(b"a", "k", hash_key=0)
    stream.put(b"b", "k", hash_key=0)
    call("SplitShard", StreamName="orders", ShardToSplit=SHARD, NewStartingHashKey="1000")
    stream.put(b"in the child", "k", hash_key=0)
    first = call("GetRecords", ShardIterator=iterator(call, "TRIM_HORIZON"), Limit=1)
    assert "ChildShards" not in first
    last = call("GetRecords", ShardIterator=first["NextShardIterator"])
    assert data(last) == ["b"]
    assert "NextShardIterator" not in last
    assert [child["ShardId"][-1] for child in last["ChildShards"]] == ["1", "2"]
    assert last["ChildShards"][0] == {
        "ShardId": "shardId-000000000001",
        "ParentShards": [SHARD],
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "999"},
    }


def test_an_iterator_of_a_deleted_stream_is_not_found(call, clock: ManualClock):
    place = iterator(call, "LATEST")
    call("DeleteStream", StreamName="orders")
    clock.advance(1)
    call("CreateStream", StreamName="orders", ShardCount=1)
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        call("GetRecords", ShardIterator=place)


def test_the_arn_of_a_read_must_match_the_iterator(call, account: Account):
    account.create_stream("other", 1)
    call("GetRecords", ShardIterator=iterator(call, "LATEST"), StreamARN=ARN)
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        call("GetRecords", ShardIterator=iterator(call, "LATEST"), StreamARN=ARN.replace("orders", "other"))


def test_the_sixth_read_of_a_second_is_throttled_when_quotas_are_on(call, account: Account, clock: ManualClock):
    account.throttle = Throttle(Quotas.service(), clock)
    for _ in range(5):
        read(call, "LATEST")
    with pytest.raises(ApiError, match="ProvisionedThroughputExceededException"):
        read(call, "LATEST")


def test_an_unknown_shard_is_not_found(call):
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        iterator(call, "LATEST", ShardId="shardId-000000000009")
