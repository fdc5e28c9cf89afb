import pytest

from recordpublisher.local import ManualClock
from recordpublisher.local.api_errors import ApiError
from recordpublisher.local.streams.resharding import split
from recordpublisher.local.streams.shard_filter import filter_shards
from recordpublisher.local.streams.stream import HOUR_MS, Stream

START = 1_700_000_000_000


@pytest.fixture
def stream(clock: ManualClock) -> Stream:
    """Shard 0 is split after one hour into 1 and 2, shard 2 after another hour into 3 and 4; then an hour passes."""
    stream = Stream("arn:aws:kinesis:us-east-1:000000000000:stream/orders", 1, clock)
    clock.advance(HOUR_MS)
    split(stream, stream.open_shards[0], 1000)
    clock.advance(HOUR_MS)
    split(stream, stream.open_shards[1], 2000)
    clock.advance(HOUR_MS)
    return stream


def shown(stream: Stream, kind: str | None, shard: int | None = None, hours: float | None = None) -> list[int]:
    shard_id = None if shard is None else f"shardId-{shard:012d}"
    timestamp = None if hours is None else START + round(hours * HOUR_MS)
    return [found.index for found in filter_shards(stream, kind, shard_id, timestamp)]


def test_no_filter_shows_all_shards(stream: Stream):
    assert shown(stream, None) == [0, 1, 2, 3, 4]


def test_after_shard_id_shows_the_later_ones(stream: Stream):
    assert shown(stream, "AFTER_SHARD_ID", shard=2) == [3, 4]


def test_at_trim_horizon_shows_where_the_oldest_records_are(stream: Stream, clock: ManualClock):
    assert shown(stream, "AT_TRIM_HORIZON") == [0]
    clock.advance(22 * HOUR_MS + 1)  # 25 h after the start: shard 0 closed more than 24 h ago
    assert shown(stream, "AT_TRIM_HORIZON") == [1, 2]


def test_from_trim_horizon_shows_all_within_retention(stream: Stream, clock: ManualClock):
    assert shown(stream, "FROM_TRIM_HORIZON") == [0, 1, 2, 3, 4]
    clock.advance(22 * HOUR_MS + 1)
    assert shown(stream, "FROM_TRIM_HORIZON") == [1, 2, 3, 4]


def test_at_latest_shows_the_open_ones(stream: Stream):
    assert shown(stream, "AT_LATEST") == [1, 3, 4]


def test_at_timestamp_shows_the_shards_open_at_that_time(stream: Stream):
    assert shown(stream, "AT_TIMESTAMP", hours=0.5) == [0]
    assert shown(stream, "AT_TIMESTAMP", hours=1.5) == [1, 2]
    assert shown(stream, "AT_TIMESTAMP", hours=3) == [1, 3, 4]


def test_from_timestamp_shows_the_shards_open_at_that_time_or_later(stream: Stream):
    assert shown(stream, "FROM_TIMESTAMP", hours=1.5) == [1, 2, 3, 4]
    assert shown(stream, "FROM_TIMESTAMP", hours=2.5) == [1, 3, 4]


def test_a_timestamp_before_the_stream_counts_as_its_creation(stream: Stream):
    assert shown(stream, "AT_TIMESTAMP", hours=-5) == [0]


def test_a_shard_split_in_the_millisecond_of_its_creation_is_the_first_one(clock: ManualClock):
    stream = Stream("arn:aws:kinesis:us-east-1:000000000000:stream/orders", 1, clock)
    split(stream, stream.open_shards[0], 1000)
    assert shown(stream, "AT_TRIM_HORIZON") == [0]


@pytest.mark.parametrize("kind", ["AFTER_SHARD_ID", "AT_TIMESTAMP", "FROM_TIMESTAMP"])
def test_a_filter_without_its_required_field_is_refused(stream: Stream, kind: str):
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        shown(stream, kind)


def test_a_timestamp_in_the_future_is_refused(stream: Stream):
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        shown(stream, "AT_TIMESTAMP", hours=3.001)


def test_the_shards_of_a_stream_that_is_made_while_a_millisecond_ends_are_at_its_trim_horizon():
    class TickingClock(ManualClock):
        def now_ms(self) -> int:
            self.advance(1)
            return super().now_ms()

    stream = Stream("arn:aws:kinesis:us-east-1:000000000000:stream/orders", 2, TickingClock(START))

    assert shown(stream, "AT_TRIM_HORIZON") == [0, 1]
