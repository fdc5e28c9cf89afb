"""W3: idleness is judged by reads, never by elapsed time alone."""

from recordpublisher.fetcher.settings import IdleIntervals
from recordpublisher.fetcher.shards.idleness import MAX_CREDIT_SECONDS, IdlenessTimer


def observed(*moments: float, interval_ms: int = 10_000) -> IdlenessTimer:
    timer = IdlenessTimer(IdleIntervals(interval_ms))
    for moment in moments:
        timer.on_empty_read(moment)
    return timer


def test_time_between_empty_reads_adds_up():
    assert observed(10.0, 10.2, 11.5).observed_ms == 1_500


def test_one_empty_read_is_not_enough():
    assert observed(10.0).observed_ms == 0


def test_a_long_gap_counts_only_in_part():
    assert observed(0.0, 3600.0).observed_ms == MAX_CREDIT_SECONDS * 1000


def test_a_record_resets_the_timer():  # W4
    timer = observed(0.0, 5.0)
    timer.on_record()

    assert timer.observed_ms == 0
    timer.on_empty_read(9.0)
    assert timer.observed_ms == 0


def test_an_interruption_keeps_the_observed_time_and_the_time_until_the_next_read_does_not_count():
    timer = observed(0.0, 5.0)
    timer.on_interruption()
    timer.on_empty_read(8.0)
    timer.on_empty_read(9.0)

    assert timer.observed_ms == 6_000


def test_time_that_the_process_lost_does_not_count():  # W3
    timer = IdlenessTimer()
    timer.on_empty_read(0.0, lost=0.0)
    timer.on_empty_read(5.0, lost=4.0)

    assert timer.observed_ms == 1_000


def test_a_shard_is_idle_once_the_whole_interval_was_observed():
    assert observed(0.0, 5.0, 10.0).is_idle
    assert not observed(0.0, 5.0).is_idle
    assert not observed(0.0, 5.0, 10.0, interval_ms=-1).is_idle


def test_after_a_suspension_an_older_response_makes_no_shard_idle():  # W3
    timer = observed(0.0, 5.0, 10.0)
    timer.on_suspension()
    timer.on_empty_read(600.0)  # in flight when the process was suspended
    timer.on_empty_read(600.01)  # from the socket's buffer

    assert not timer.is_idle


def test_after_a_suspension_a_shard_is_idle_again_after_two_seconds_of_silence():  # W3
    timer = observed(0.0, 5.0, 10.0)
    timer.on_suspension()
    for moment in (600.0, 601.0, 602.0):
        timer.on_empty_read(moment)

    assert timer.is_idle
