"""E3: only time between two answered reads counts as silence."""

from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.leases.heartbeat import SilenceObserver

ROUNDING_SECONDS = 1e-6


def observer_after(*reads, max_gap=10.0):
    """Each read: when it was sent and answered, and the heartbeat of worker x."""
    observer = SilenceObserver(max_gap)
    for sent, answered, beat in reads:
        observer.observe({"x": beat}, sent, answered)
    return observer


def is_silent(observer, seconds=20.0):
    return observer.silent_for({"x": seconds}) == {"x"}


def test_a_heartbeat_that_stands_for_the_whole_time_is_silent():
    reads = [(t, t, 1) for t in (0, 5, 10, 15)]
    assert not is_silent(observer_after(*reads))
    assert is_silent(observer_after(*reads, (20, 20, 1)))


def test_a_new_heartbeat_begins_anew():
    assert not is_silent(observer_after((0, 0, 1), (8, 8, 1), (16, 16, 2), (20, 20, 2), (30, 30, 2)))


def test_a_gap_of_the_observer_counts_nothing():
    assert not is_silent(observer_after((0, 0, 1), (90, 90, 1)))


def test_a_gap_of_the_observer_resets_nothing():  # an observer that stalls 6 s in every 15 must find the dead, too
    reads = [(start + t, start + t, 1) for start in (0, 100, 200) for t in (0, 4, 9)]
    assert is_silent(observer_after(*reads))


def test_the_time_of_a_slow_answer_does_not_count():
    """The read may have been made when it was sent or when it was answered: the time is counted from the answer to the next sending."""
    assert not is_silent(observer_after((0, 8, 1), (10, 18, 1), (20, 21, 1)))
    assert is_silent(observer_after((0, 8, 1), (10, 18, 1), (28, 29, 1)))


def test_a_worker_that_is_seen_no_more_is_forgotten():
    observer = observer_after((0, 0, 1), (9, 9, 1), (18, 18, 1))
    observer.observe({}, 20, 20)
    observer.observe({"x": 1}, 21, 21)
    assert not is_silent(observer)


@given(st.lists(st.tuples(st.floats(0, 15), st.floats(0, 4)), min_size=2, max_size=12), st.data())
def test_a_worker_is_never_silent_for_longer_than_its_heartbeat_has_stood(reads, data):
    """Whenever within its call each read is made, and whenever the heartbeat was written."""
    observer, now, seen = SilenceObserver(10.0), 0.0, None
    beat_at, beat = 0.0, 1
    for pause, duration in reads:
        sent = now + pause
        answered = sent + duration
        read_at = data.draw(st.floats(sent, answered))
        if data.draw(st.booleans()):
            beat_at, beat = data.draw(st.floats(now, read_at)), beat + 1
        observer.observe({"x": beat}, sent, answered)
        now, seen = answered, read_at
    assert seen is not None
    assert not observer.silent_for({"x": seen - beat_at + ROUNDING_SECONDS})
