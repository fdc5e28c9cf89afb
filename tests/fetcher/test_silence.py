"""W3: idleness on evidence, never on elapsed time alone."""

from recordpublisher.fetcher.silence import LONGEST_CREDIT_SECONDS, SilenceClock


def seen(*moments: float) -> SilenceClock:
    clock = SilenceClock()
    for moment in moments:
        clock.saw_silence(moment)
    return clock


def test_time_between_silent_answers_adds_up():
    assert seen(10.0, 10.2, 11.5).observed_ms == 1_500


def test_one_answer_is_no_evidence_of_an_interval():
    assert seen(10.0).observed_ms == 0


def test_a_long_gap_was_not_observed():
    assert seen(0.0, 3600.0).observed_ms == LONGEST_CREDIT_SECONDS * 1000


def test_life_voids_the_evidence():  # W4
    clock = seen(0.0, 5.0)
    clock.saw_life()

    assert clock.observed_ms == 0
    clock.saw_silence(9.0)
    assert clock.observed_ms == 0


def test_an_interruption_keeps_the_evidence_and_credits_nothing_since():
    clock = seen(0.0, 5.0)
    clock.interrupted()
    clock.saw_silence(8.0)
    clock.saw_silence(9.0)

    assert clock.observed_ms == 6_000
