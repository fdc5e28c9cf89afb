"""What a listing says about a shard that it leaves out (F4, S5)."""

import pytest

from recordpublisher.publishers.shards import Shard, is_listing_older_than


def shards(*ids: str, stream: str = "s") -> list[Shard]:
    return [Shard(stream, each) for each in ids]


FIRST, SECOND, THIRD = (f"shardId-{number:012d}" for number in range(3))


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([FIRST], True),  # nothing younger is listed: the listing may be older than the shard
        ([FIRST, THIRD], False),  # a younger one is: ours is gone
        ([FIRST, SECOND], False),
        ([], False),
        (["lines-1"], False),  # ids of another source say nothing about age
    ],
)
def test_a_listing_without_anything_younger_may_be_older_than_the_shard(listed, expected):
    assert is_listing_older_than(Shard("s", SECOND), shards(*listed)) is expected


def test_other_streams_do_not_count():
    listed = [*shards(FIRST), *shards(THIRD, stream="t")]
    assert is_listing_older_than(Shard("s", SECOND), listed)
