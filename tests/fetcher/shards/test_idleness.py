"""W3: idleness on evidence, never on elapsed time alone."""

from recordpublisher.fetcher.shards.idleness import LONGEST_CREDIT_SECONDS, IdlenessTimer


def seen(*moments: float) -> IdlenessTimer:
    clock = IdlenessTimer()
    for moment in moments:
        clock.on_empty_read(moment)
    return clock


def test_time_between_silent_answers_adds_up():
    assert seen(10.0, 10.2, 11.5).observed_ms == 1_500


def test_one_answer_is_no_evidence_of_an_interval():
    assert seen(10.0).observed_ms == 0


def test_a_long_gap_was_not_observed():
    assert seen(0.0, 3600.0).observed_ms == LONGEST_CREDIT_SECONDS * 1000


def test_life_voids_the_evidence():  # W4
    clock = seen(0.0, 5.0)
    clock.on_record()

    assert clock.observed_ms == 0
    clock.on_empty_read(9.0)
    assert clock.observed_ms == 0


def test_an_interruption_keeps_the_evidence_and_credits_nothing_since():
    clock = seen(0.0, 5.0)
    clock.on_interruption()
    clock.on_empty_read(8.0)
    clock.on_empty_read(9.0)

    assert clock.observed_ms == 6_000


def test_time_that_the_process_lost_is_not_credited():  # W3
    clock = IdlenessTimer()
    clock.on_empty_read(0.0, lost=0.0)
    clock.on_empty_read(5.0, lost=4.0)

    assert clock.observed_ms == 1_000


def test_silence_lasts_once_the_whole_interval_was_seen():
    assert seen(0.0, 5.0, 10.0).lasts(10_000)
    assert not seen(0.0, 5.0).lasts(10_000)
    assert not seen(0.0, 5.0, 10.0).lasts(-1)


def test_after_a_sleep_an_answer_from_before_it_judges_nothing():  # W3
    clock = seen(0.0, 5.0, 10.0)
    clock.on_suspension()
    clock.on_empty_read(600.0)  # under way when the process was stopped
    clock.on_empty_read(600.01)  # from the socket's buffer

    assert not clock.is_idle(10_000)


def test_after_a_sleep_two_seconds_of_new_silence_confirm_the_old():  # W3
    clock = seen(0.0, 5.0, 10.0)
    clock.on_suspension()
    for moment in (600.0, 601.0, 602.0):
        clock.on_empty_read(moment)

    assert clock.is_idle(10_000)
