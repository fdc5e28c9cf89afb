import pytest

from recordpublisher.local import ManualClock
from recordpublisher.local.api_errors import ApiError
from recordpublisher.local.streams.resharding import split
from recordpublisher.local.streams.stream import HOUR_MS, Stream

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


@pytest.fixture
def stream(clock: ManualClock) -> Stream:
    return Stream(ARN, 2, clock)


def test_a_stream_is_creating_for_the_given_time(clock: ManualClock):
    stream = Stream(ARN, 1, clock, creating_ms=50)
    assert stream.status == "CREATING"
    clock.advance(50)
    assert stream.status == "ACTIVE"


def test_a_record_goes_to_the_shard_of_its_key_or_of_its_explicit_hash_key(stream: Stream):
    stream.put(b"by key", "b")  # md5 begins with 9: upper half
    stream.put(b"by hash", "b", hash_key=0)
    low, high = stream.open_shards
    assert (len(low.log), len(high.log)) == (1, 1)


def test_records_are_kept_for_the_retention_period(stream: Stream, clock: ManualClock):
    stream.put(b"old", "a")
    shard = stream.shard_for(0)
    clock.advance(24 * HOUR_MS)
    stream.shard(shard.id)
    assert len(shard.log) == 1
    clock.advance(1)
    stream.shard(shard.id)
    assert len(shard.log) == 0


def test_a_closed_shard_is_kept_until_its_last_record_is_past_retention(stream: Stream, clock: ManualClock):
    parent = stream.open_shards[0]
    clock.advance(HOUR_MS)
    split(stream, parent, 1000)
    clock.advance(24 * HOUR_MS)
    assert stream.shard(parent.id) is parent
    clock.advance(1)
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        stream.shard(parent.id)
    stream.apply_retention()
    assert parent.id not in stream.shards


@pytest.mark.parametrize("spelling", ["shardId-1", "shard-000001", "1", "shardId-000000000001"])
def test_a_shard_is_found_by_the_number_in_its_id(stream: Stream, spelling: str):
    assert stream.shard(spelling).id == "shardId-000000000001"


@pytest.mark.parametrize("spelling", ["shardId-2", "shardId-", "shardId-1a", "shardId-2147483648", "shardId-\u0661"])
def test_other_spellings_find_no_shard(stream: Stream, spelling: str):
    with pytest.raises(ApiError, match="ResourceNotFoundException"):
        stream.shard(spelling)
