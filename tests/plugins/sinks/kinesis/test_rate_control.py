import pytest

from recordpublisher.plugins.sinks.kinesis.adaptive_rate import ShardRateLimit


@pytest.mark.parametrize(("records", "size", "seconds"), [(250, 1, 0.25), (1, 2**20, 1.0), (10, 2**19, 0.5)])
def test_the_stricter_limit_decides_how_long_a_shard_needs(records, size, seconds):
    assert ShardRateLimit(1_000, 2**20).seconds_for(records, size) == pytest.approx(seconds)
