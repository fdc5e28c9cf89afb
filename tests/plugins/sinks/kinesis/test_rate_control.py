import pytest

from recordpublisher.plugins.sinks.kinesis.rate_control import MAX_WINDOW, CongestionWindow, ShardRateLimit


def test_a_window_shrinks_by_a_fifth_and_grows_by_steps():
    window = CongestionWindow()
    window.shrink()
    assert window.size == 4_000
    window.grow()
    assert window.size == 4_005


def test_a_window_stays_within_its_bounds():
    window = CongestionWindow()
    window.grow()
    assert window.size == MAX_WINDOW
    for _ in range(100):
        window.shrink()
    assert window.size == 1


def test_a_small_initial_window_doubles_until_the_shard_throttles():
    window = CongestionWindow(32)
    window.grow()
    window.grow()
    assert window.size == 128
    window.shrink()
    window.grow()
    assert window.size == 107


@pytest.mark.parametrize(
    ("records", "size", "window", "seconds"),
    [(250, 1, 5_000, 0.25), (1, 2**20, 5_000, 1.0), (10, 1, 10, 0.25), (5, 1, 10, 0.125)],
)
def test_the_strictest_limit_decides_the_pause(records, size, window, seconds):
    assert ShardRateLimit(1_000, 2**20).pause_seconds(records, size, window) == pytest.approx(seconds)
