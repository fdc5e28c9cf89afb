"""What arrives in a shard, from reads near its tip."""

import pytest

from recordpublisher.plugins.lag.probe import ShardActivity, measure_activity
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.records import UserRecord
from recordpublisher.testing.virtual_time import run_virtual

from fakes.shard_entries import shard

NOW, MINUTE = 10_000_000, 60_000


class Port:
    """A shard with records of 100 bytes that arrived at these times; the first reads of an iterator may be empty."""

    def __init__(self, arrivals, empty=0):
        self.arrivals = arrivals
        self.empty = empty
        self.reads = []

    async def get_shard_iterator(self, shard, position):
        return [arrival for arrival in self.arrivals if arrival >= position.timestamp_ms]

    async def get_records(self, shard, iterator, limit):
        self.reads.append(limit)
        if self.empty:
            self.empty -= 1
            return ReadResponse([], 1000, iterator)
        records = [UserRecord(b"x" * 100, str(arrival), arrival / 1000) for arrival in iterator[:limit]]
        return ReadResponse(records, 1000 * (len(iterator) > limit), iterator[limit:])


def activity(port):
    return run_virtual(measure_activity(port, shard(), NOW, 2 * MINUTE))


def test_a_quiet_shard_is_read_once_and_has_the_rate_of_the_interval():
    port = Port([NOW - MINUTE, NOW - 30_000, NOW - 6_000])

    assert activity(port) == ShardActivity(3 / 120, 300 / 120, str(NOW - 6_000), 6_000)
    assert len(port.reads) == 1


def test_a_busy_shard_has_the_rate_of_the_last_two_seconds():
    port = Port(range(NOW - MINUTE, NOW, 10))

    assert activity(port) == ShardActivity(100.0, 10_000.0, str(NOW - 10), 10)
    assert len(port.reads) == 2


def test_a_shard_with_too_many_records_to_read_has_their_rate_and_no_known_tip():
    assert activity(Port(range(NOW - MINUTE, NOW))) == ShardActivity(1000.0, 100_000.0)


@pytest.mark.parametrize(("ago", "window"), [(4_000, 20), (60_000, 120)])
def test_a_burst_before_the_last_two_seconds_is_not_idle(ago, window):
    burst = [NOW - ago + number for number in range(150)]

    assert activity(Port(burst)) == ShardActivity(150 / window, 15_000 / window, str(burst[-1]), ago - 149)


@pytest.mark.parametrize("ago", [4_000, 90_000])
def test_the_newest_record_of_a_burst_of_more_records_than_a_read_brings_is_found(ago):
    burst = [NOW - ago + number // 4 for number in range(3_000)]
    port = Port(burst)

    found = activity(port)

    assert (found.tip, found.tip_age_ms) == (str(burst[-1]), NOW - burst[-1])
    assert 0 < found.records_per_second < 1_000  # Their rate is not the rate of the burst.
    assert len(port.reads) < 14


def test_a_shard_without_records_in_the_interval_has_the_rate_0():
    assert activity(Port([NOW - 3 * MINUTE])) == ShardActivity(0.0, 0.0)


def test_empty_responses_on_the_way_are_read_past():
    assert activity(Port([NOW - 6_000], empty=4)).tip == str(NOW - 6_000)


@pytest.mark.parametrize("port", [Port([NOW - 6_000], empty=5), Port([NOW - 1] * 2_000), Port([NOW - 6_000] * 2_000)])
def test_what_cannot_be_seen_is_not_known(port):
    assert activity(port) == ShardActivity()


def test_a_busy_shard_whose_last_record_has_an_earlier_arrival_has_no_rate_below_0():
    """Arrivals are approximate."""
    port = Port([NOW - 900 - 1500 * (number > 990) for number in range(1_001)])
    port.arrivals.sort(key=lambda at: -at)
    port.get_shard_iterator = lambda shard, position: _all(port.arrivals)

    assert activity(port) == ShardActivity()


async def _all(arrivals):
    return arrivals
