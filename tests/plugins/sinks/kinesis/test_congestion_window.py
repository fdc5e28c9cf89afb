"""How the results of calls change the window of a shard."""

import pytest

from recordpublisher.plugins.sinks.kinesis.congestion_window import (
    CONTENDED_BURST_SECONDS,
    MAX_WINDOW,
    CongestionWindow,
)
from recordpublisher.plugins.sinks.kinesis.rate_control import BURST_SECONDS


class Calls:
    """Ten calls a second to one shard."""

    def __init__(self, window):
        self.window = window
        self.now = 0.0

    def send(self, seconds, refused=0, sent=None):
        """The same results in every call; by default as many records are sent as the window allows."""
        for _ in range(round(seconds * 10)):
            count = round(self.window.size * 0.1 / BURST_SECONDS) if sent is None else sent
            self.window.add_results(count, min(refused, count), self.now)
            self.now += 0.1


def a_window(size=200):
    window = CongestionWindow(size)
    window.add_results(1, 1, 0.0)  # ends the doubling
    return window


def test_a_window_shrinks_by_a_fifth_for_all_refusals_of_half_a_second():
    window = CongestionWindow(200)
    Calls(window).send(0.6, refused=3)
    assert window.size == pytest.approx(200 * 0.8, rel=0.25)


def test_a_window_above_the_rate_that_is_sent_shrinks_from_that_rate():
    window = CongestionWindow(MAX_WINDOW)
    Calls(window).send(0.6, refused=3, sent=10)
    assert window.size < 10 * 10 * BURST_SECONDS


def test_a_window_grows_while_nothing_is_refused_and_stays_within_its_bounds():
    window = a_window()
    calls = Calls(window)
    calls.send(0.6)
    before = window.size
    calls.send(2)
    assert window.size > before
    calls.send(600)
    assert window.size == MAX_WINDOW


def test_a_window_is_never_smaller_than_one_record():
    window = CongestionWindow(4)
    Calls(window).send(60, refused=1, sent=1)
    assert window.size >= 1


def test_a_small_initial_window_doubles_with_each_call_until_the_shard_throttles():
    window = CongestionWindow(32)
    for number in range(2):
        window.add_results(32, 0, number / 10)
    assert window.size == 128
    window.add_results(128, 1, 0.2)
    window.add_results(128, 0, 0.3)
    assert window.size == 128


def test_refusals_that_go_on_at_any_rate_no_longer_shrink_the_window():
    window = a_window()
    calls = Calls(window)
    calls.send(10, refused=1)
    assert not window.others_back_off
    before = window.size
    calls.send(1, refused=1)
    assert window.size > before or window._trial.is_running


def test_a_large_share_of_refusals_shrinks_the_window_whatever_the_others_do():
    window = a_window()
    calls = Calls(window)
    calls.send(60, refused=1_000)
    assert window.size < 10


def test_refusals_that_end_at_half_the_rate_show_that_others_back_off():
    window = a_window()
    calls = Calls(window)
    for _ in range(300):
        calls.send(0.1, refused=max(0, round(window.size / 10) - 15))
    assert window.others_back_off


def test_calls_are_small_for_some_seconds_after_a_refusal():
    window = CongestionWindow(200)
    assert window.burst_seconds(0.0) == BURST_SECONDS
    window.add_results(10, 1, 1.0)
    assert window.burst_seconds(5.0) == CONTENDED_BURST_SECONDS
    assert window.burst_seconds(7.0) == BURST_SECONDS
