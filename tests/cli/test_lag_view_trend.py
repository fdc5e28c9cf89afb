"""The small charts of `lag --watch`."""

from recordpublisher.cli.lag_view import POINTS, Trend, bars
from recordpublisher.plugins.lag.job_snapshot import JobSnapshot, ShardSnapshot


def reading(time_ms, records_per_second, lag_ms):
    shard = ShardSnapshot(stream="s", shard="a", records_per_second=records_per_second, lag_ms=lag_ms)
    return JobSnapshot(time_ms=time_ms, shards=[shard])


def line_of(*readings):
    trend = Trend()
    for each in readings:
        trend.add(reading(*each))
    return trend.line()


def test_both_are_drawn_from_two_readings_on():
    assert line_of((0, 1.0, 5)) is None
    assert line_of((0, 50.0, 8_000), (5_000, 100.0, 4_000), (5_000, 100.0, 4_000)) == (
        "In 5.0 s: records/s ▅█ 100, largest lag █▅ 4.0 s"
    )


def test_what_is_not_known_is_not_drawn():
    assert line_of((0, None, 2), (1_000, None, 2)) == "In 1.0 s: largest lag ██ 2 ms"
    assert line_of((0, None, None), (1_000, None, None)) is None


def test_only_the_last_readings_are_drawn():
    assert line_of(*((number * 1_000, 1.0, None) for number in range(100))).count("█") == POINTS


def test_bars_are_relative_to_the_largest():
    assert bars([0, 50, None, 100]) == "▁▅ █"
    assert bars([0, 0]) == "▁▁"
