"""How the results of calls change the rate at which a shard is sent records."""

from statistics import mean

import pytest

from recordpublisher.plugins.sinks.kinesis.shard_rate import (
    BURST_SECONDS,
    DECREASE,
    FREQUENT_BURST_SECONDS,
    INCREASE,
    TOLERATED_SHARE,
    AdaptiveRate,
    ShardRateLimit,
)


class Calls:
    """Ten calls a second to one shard, as large as the rate allows."""

    def __init__(self, rate):
        self.rate = rate
        self.now = 0.0

    def send(self, seconds, refused_share=0.0):
        """The same part of every call is refused."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            sent = self.rate.fraction * 0.1
            self.rate.add_results(sent, sent * refused_share, self.now)


def a_rate(fraction, refusing_calls=0.0):
    """A rate after its first refusals."""
    rate = AdaptiveRate()
    rate.add_results(0.001, 0.001, 0.0)
    rate.fraction, rate._refusing_calls = fraction, refusing_calls
    return rate


def test_a_rate_grows_by_the_same_amount_each_second_after_a_refusal():
    slow, fast = a_rate(0.1), a_rate(0.4)
    for rate in (slow, fast):
        rate.add_results(0.0, 0.0, 1.0)
    assert slow.fraction == pytest.approx(0.1 + INCREASE)
    assert fast.fraction == pytest.approx(0.4 + INCREASE)


@pytest.mark.parametrize("fraction", [0.2, 0.5])
def test_each_refused_record_lowers_a_rate_by_the_same_amount(fraction):
    rate = a_rate(fraction)
    rate.add_results(0.05, 0.01, 0.0)
    assert rate.fraction == pytest.approx(fraction - DECREASE * 0.01)


def test_one_call_lowers_a_rate_to_half_at_most():
    rate = a_rate(0.8)
    rate.add_results(0.25, 0.25, 0.0)
    assert rate.fraction == pytest.approx(0.4)


def test_a_rate_never_falls_to_zero_and_recovers():
    rate = a_rate(0.5)
    calls = Calls(rate)
    calls.send(60, refused_share=1.0)
    assert 0 < rate.fraction < 0.05
    calls.send(60)
    assert rate.fraction == 1


def test_a_small_initial_rate_doubles_with_each_call_until_the_shard_throttles():
    rate = AdaptiveRate(0.125)
    for number in range(2):
        rate.add_results(0.03, 0.0, number / 10)
    assert rate.fraction == 0.5
    rate.add_results(0.1, 0.01, 0.2)
    assert rate.fraction < 0.5
    rate.add_results(0.1, 0.0, 0.3)
    assert rate.fraction < 0.55


def test_a_small_part_of_refusals_that_go_on_does_not_lower_the_rate():
    rate = a_rate(0.5)
    Calls(rate).send(120, refused_share=TOLERATED_SHARE - 0.01)
    assert rate.has_frequent_refusals
    assert rate.fraction == pytest.approx(1)


def test_a_large_part_of_refusals_lowers_the_rate_however_frequent_they_are():
    rate = a_rate(0.5)
    Calls(rate).send(120, refused_share=0.5)
    assert rate.has_frequent_refusals
    assert rate.fraction < 0.1


def test_calls_are_small_for_some_seconds_after_a_refusal_and_smaller_if_refusals_are_frequent():
    def sizes(rate, now):
        return [rate.burst_seconds(now) for _ in range(200)]

    rare, frequent = a_rate(0.25), a_rate(0.25, refusing_calls=10)
    assert mean(sizes(rare, 4.0)) == pytest.approx(0.1, rel=0.2)
    assert mean(sizes(frequent, 4.0)) == pytest.approx(FREQUENT_BURST_SECONDS, rel=0.2)
    assert set(sizes(rare, 6.0)) == {BURST_SECONDS}


@pytest.mark.parametrize(("records", "size", "seconds"), [(250, 1, 0.25), (1, 2**20, 1.0), (10, 2**19, 0.5)])
def test_the_stricter_limit_decides_how_long_a_shard_needs(records, size, seconds):
    assert ShardRateLimit(1_000, 2**20).seconds_for(records, size) == pytest.approx(seconds)
