"""E6: the load of a shard is that of about the last minute, however long it has been read."""

import pytest

from recordpublisher.fetcher.leases.planning import LoadRate, StatedLoadLevels

BEAT = 5.0


class Reading:
    """A shard that is read, and looked at with each heartbeat."""

    def __init__(self):
        self.now = 1_000.0
        self.bytes = 0.0
        self.rate = LoadRate(self.now)

    def read(self, seconds, bytes_per_second):
        end = self.now + seconds
        while self.now < end:
            self.now += BEAT
            self.bytes += bytes_per_second * BEAT
            self.rate.observe(round(self.bytes), self.now)
        return self.rate.bytes_per_second


def test_nothing_is_known_in_the_first_minute():
    reading = Reading()
    assert reading.rate.bytes_per_second is None
    assert reading.read(55, 9_000) is None
    assert reading.read(5, 9_000) == pytest.approx(9_000)


def test_a_constant_load_is_measured_as_it_is():
    assert Reading().read(86_400, 5_000) == pytest.approx(5_000)


def test_new_traffic_counts_within_minutes_after_days():
    reading = Reading()
    reading.read(2 * 86_400, 2_000)
    assert reading.read(60, 50_000) > 30_000
    assert reading.read(240, 50_000) == pytest.approx(50_000, rel=0.02)


def test_a_backlog_at_the_start_is_forgotten():
    reading = Reading()
    assert reading.read(120, 2_000_000) == pytest.approx(2_000_000)
    assert reading.read(600, 2_000) == pytest.approx(2_000, rel=0.1)


def test_how_often_it_is_observed_changes_little():
    reading = Reading()
    reading.read(600, 4_000)
    reading.now += 300
    reading.bytes += 300 * 12_000
    reading.rate.observe(round(reading.bytes), reading.now)
    reading.rate.observe(round(reading.bytes), reading.now)
    assert reading.rate.bytes_per_second == pytest.approx(12_000, rel=0.01)


def test_the_stated_level_follows_the_traffic():
    levels, reading = StatedLoadLevels(), Reading()

    def state(seconds, bytes_per_second):
        return levels.state(["t/0"], {"t/0": reading.read(seconds, bytes_per_second)}).get("t/0", 0)

    quiet, busy, quiet_again = state(3_600, 2_000), state(300, 100_000), state(600, 2_000)
    assert busy - quiet >= 16, "fifty times"
    assert abs(quiet_again - quiet) <= 1
