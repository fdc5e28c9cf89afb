"""How many workers a group should have, from lag, rate and the number of shards."""

import pytest

from recordpublisher.fetcher.monitoring.workers_wanted import WorkersWanted, workers_wanted

CATCH_UP = 600.0


@pytest.mark.parametrize(
    ("shards", "lag", "speed", "rate", "capacity", "wanted"),
    [
        (0, 0.0, None, 0.0, None, 0.0),  # a process beyond the number of shards
        (8, 0.0, None, 0.0, None, 1.0),  # nothing is known
        (8, 3600.0, None, 0.0, None, 1.0),
        (8, 0.0, 1.0, 40.0, None, 1.0),  # it keeps up, and nobody knows what it could do
        (8, 0.0, 1.0, 40.0, 100.0, 0.5),  # it keeps up with half of what is planned for it
        (8, 59.0, 1.0, 160.0, 100.0, 2.0),
        (8, 600.0, 1.0, 100.0, 100.0, 2.0),  # it falls no further behind; twice as fast, and it is at the tip in time
        (8, 600.0, 2.0, 100.0, 100.0, 1.0),  # it will be there in time
        (8, 1800.0, 0.5, 100.0, None, 8.0),
        (3, 1800.0, 0.5, 100.0, None, 3.0),  # a shard has one reader
        (100, 600.0, 0.0, 0.0, None, 20.0),  # it stands still
        (100, 600.0, -3.0, 0.0, None, 20.0),
    ],
)
def test_the_part_of_one_process(shards, lag, speed, rate, capacity, wanted):
    assert workers_wanted(shards, lag, speed, rate, capacity, CATCH_UP) == pytest.approx(wanted)


class Clock:
    seconds = 0.0

    def monotonic(self):
        return self.seconds


class Process:
    """A process that is observed every five seconds: its clock, lag and records go on as the test says."""

    def __init__(self, lag, shards=("a", "b", "c", "d")):
        self.clock, self.lag, self.shards, self.records = Clock(), lag, shards, 0
        self.wanted = WorkersWanted(self.clock)

    def run(self, seconds, speed, rate):
        for _ in range(int(seconds / 5)):
            self.clock.seconds += 5
            self.lag = max(0.0, self.lag - 5 * (speed - 1))
            self.records += 5 * rate
            self.wanted.observe(dict.fromkeys(self.shards, int(self.lag * 1000)), self.records)
        return round(self.wanted.part, 2)


def test_a_process_that_falls_behind_asks_for_more():
    assert Process(lag=600).run(60, speed=0.5, rate=100) == pytest.approx((1 + 630 / 600) / 0.5, abs=0.1)


def test_nothing_is_asked_for_before_the_speed_is_known():
    assert Process(lag=600).run(5, speed=0.5, rate=100) == 1.0


def test_a_process_that_was_behind_knows_what_it_can_do():
    process = Process(lag=600)
    process.run(120, speed=5, rate=500)
    process.run(120, speed=5, rate=500)

    assert process.run(120, speed=1, rate=100) == 0.25


def test_with_other_shards_the_speed_is_measured_anew():
    process = Process(lag=600)
    process.run(60, speed=0.5, rate=100)
    process.shards, process.lag = ("a",), 3000

    assert process.run(5, speed=0.5, rate=100) == 1.0


def test_a_shard_that_was_not_read_yet_has_no_lag():
    process = Process(lag=600)
    process.wanted.observe({"a": -1, "b": 0}, 0)

    assert process.wanted.part == 1.0
