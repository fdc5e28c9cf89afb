from itertools import pairwise

import pytest

from recordpublisher.local.api_errors import ApiError
from recordpublisher.local.streams.shard import HASH_KEYS, HashRange, explicit_hash, hash_of, uniform_ranges


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000])
def test_uniform_ranges_cover_all_hash_keys_without_gap_or_overlap(count: int):
    ranges = uniform_ranges(count)
    assert ranges[0].start == 0
    assert ranges[-1].end == HASH_KEYS - 1
    assert all(low.end + 1 == high.start for low, high in pairwise(ranges))


def test_four_shards_have_the_documented_boundaries():
    assert uniform_ranges(4)[1] == HashRange(
        85070591730234615865843651857942052864, 170141183460469231731687303715884105727
    )


def test_the_hash_of_a_partition_key_is_its_md5():
    assert hash_of("a") == 0x0CC175B9C0F1B6A831C399E269772661


def test_an_explicit_hash_key_is_below_2_to_the_128():
    assert explicit_hash(str(HASH_KEYS - 1)) == HASH_KEYS - 1
    with pytest.raises(ApiError, match="InvalidArgumentException"):
        explicit_hash(str(HASH_KEYS))
