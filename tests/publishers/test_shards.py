"""Whether a listing lacks shards, and whether one that does is older than the shard (F4, S5)."""

import pytest

from recordpublisher.publishers.shards import (
    MAX_HASH_KEY,
    HashRange,
    Shard,
    first_unlisted_range,
    is_listing_older_than,
)


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


def of_keys(start, end, *, closed=False):
    return Shard("s", f"{start}", hash_range=HashRange(start, end), closed=closed)


@pytest.mark.parametrize(
    ("listed", "unlisted"),
    [
        ([of_keys(0, MAX_HASH_KEY)], None),
        ([of_keys(10, MAX_HASH_KEY), of_keys(0, 9)], None),
        ([of_keys(0, 9), of_keys(0, 20), of_keys(15, MAX_HASH_KEY)], None),  # overlapping: each key is taken
        ([of_keys(0, MAX_HASH_KEY, closed=True), of_keys(0, 9)], HashRange(10, MAX_HASH_KEY)),
        ([of_keys(0, 9), of_keys(12, MAX_HASH_KEY)], HashRange(10, 11)),
        ([of_keys(3, MAX_HASH_KEY)], HashRange(0, 2)),
        ([], HashRange(0, MAX_HASH_KEY)),
    ],
)
def test_the_open_shards_of_a_complete_listing_take_every_hash_key(listed, unlisted):
    assert first_unlisted_range(listed) == unlisted
