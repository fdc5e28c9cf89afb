"""Rates from two moments of the counters."""

from recordpublisher.plugins.lag.rates import WINDOW_SECONDS, Rates


def test_one_moment_gives_no_rate():
    rates = Rates()
    rates.add(1.0, {"a": (5, 50)})

    assert rates.per_second("a") is None


def test_the_rate_is_the_difference_over_the_time():
    rates = Rates()
    rates.add(1.0, {"a": (5, 50)})
    rates.add(3.0, {"a": (9, 250), "b": (1, 10)})

    assert rates.per_second("a") == (2.0, 100.0)
    assert rates.per_second("b") is None, "it was not there before"


def test_only_the_window_counts():
    rates = Rates()
    for second in range(30):
        rates.add(float(second), {"a": (100 if second < 15 else 100 + 10 * (second - 14), 0)})

    assert rates.per_second("a") == (10.0, 0.0)
    assert WINDOW_SECONDS == 10.0


def test_a_counter_that_began_anew_gives_no_rate():
    rates = Rates()
    rates.add(1.0, {"a": (500, 50)})
    rates.add(3.0, {"a": (9, 250)})

    assert rates.per_second("a") is None
