import pytest

from recordpublisher.plugins.sinks.kinesis.rate_control import ShardRateLimit


@pytest.mark.parametrize(
    ("records", "size", "window", "seconds"),
    [(250, 1, 5_000, 0.25), (1, 2**20, 5_000, 1.0), (10, 1, 10, 0.25), (5, 1, 10, 0.125)],
)
def test_the_strictest_limit_decides_the_pause(records, size, window, seconds):
    assert ShardRateLimit(1_000, 2**20).pause_seconds(records, size, window) == pytest.approx(seconds)
