"""Whether a listing that lacks a shard is older than the shard (F4, S5)."""

import pytest

from recordpublisher.publishers.shards import Shard, is_listing_older_than


def shards(*ids: str, stream: str = "s") -> list[Shard]:
    return [Shard(stream, each) for each in ids]


FIRST, SECOND, THIRD = (f"shardId-{number:012d}" for number in range(3))


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([FIRST], True),  # no newer shard is listed: the listing may be older than the shard
        ([FIRST, THIRD], False),  # a newer one is listed: the shard is gone
        ([FIRST, SECOND], False),
        ([], False),
        (["lines-1"], False),  # the ids of another source are not numbered
    ],
)
def test_a_listing_without_newer_shards_may_be_older_than_the_shard(listed, expected):
    assert is_listing_older_than(Shard("s", SECOND), shards(*listed)) is expected


def test_shards_of_other_streams_are_ignored():
    listed = [*shards(FIRST), *shards(THIRD, stream="t")]
    assert is_listing_older_than(Shard("s", SECOND), listed)
