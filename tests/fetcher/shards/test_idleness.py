"""W3: idleness on evidence, never on elapsed time alone."""

from recordpublisher.fetcher.shards.idleness import MAX_CREDIT_SECONDS, IdlenessTimer


def observed(*moments: float) -> IdlenessTimer:
    timer = IdlenessTimer()
    for moment in moments:
        timer.on_empty_read(moment)
    return timer


def test_time_between_silent_answers_adds_up():
    assert observed(10.0, 10.2, 11.5).observed_ms == 1_500


def test_one_answer_is_no_evidence_of_an_interval():
    assert observed(10.0).observed_ms == 0


def test_a_long_gap_was_not_observed():
    assert observed(0.0, 3600.0).observed_ms == MAX_CREDIT_SECONDS * 1000


def test_life_voids_the_evidence():  # W4
    timer = observed(0.0, 5.0)
    timer.on_record()

    assert timer.observed_ms == 0
    timer.on_empty_read(9.0)
    assert timer.observed_ms == 0


def test_an_interruption_keeps_the_evidence_and_credits_nothing_since():
    timer = observed(0.0, 5.0)
    timer.on_interruption()
    timer.on_empty_read(8.0)
    timer.on_empty_read(9.0)

    assert timer.observed_ms == 6_000


def test_time_that_the_process_lost_is_not_credited():  # W3
    timer = IdlenessTimer()
    timer.on_empty_read(0.0, lost=0.0)
    timer.on_empty_read(5.0, lost=4.0)

    assert timer.observed_ms == 1_000


def test_silence_lasts_once_the_whole_interval_was_seen():
    assert observed(0.0, 5.0, 10.0).is_idle(10_000)
    assert not observed(0.0, 5.0).is_idle(10_000)
    assert not observed(0.0, 5.0, 10.0).is_idle(-1)


def test_after_a_sleep_an_answer_from_before_it_judges_nothing():  # W3
    timer = observed(0.0, 5.0, 10.0)
    timer.on_suspension()
    timer.on_empty_read(600.0)  # under way when the process was stopped
    timer.on_empty_read(600.01)  # from the socket's buffer

    assert not timer.is_idle(10_000)


def test_after_a_sleep_two_seconds_of_new_silence_confirm_the_old():  # W3
    timer = observed(0.0, 5.0, 10.0)
    timer.on_suspension()
    for moment in (600.0, 601.0, 602.0):
        timer.on_empty_read(moment)

    assert timer.is_idle(10_000)
