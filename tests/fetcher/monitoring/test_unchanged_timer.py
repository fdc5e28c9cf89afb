"""A2: how long a value was unchanged; only checks that ran count."""

from recordpublisher.fetcher.monitoring.stall_detector import UnchangedTimer


def seen(*looks, max_gap=2.0):
    timer = UnchangedTimer(max_gap)
    return [timer.observe(thing, now) for thing, now in looks]


def test_it_adds_up_while_the_thing_stays():
    assert seen(("a", 10), ("a", 11), ("a", 12.5)) == [0, 1, 2.5]


def test_a_change_begins_anew():
    assert seen(("a", 10), ("a", 11), ("b", 12), ("b", 13)) == [0, 1, 0, 1]


def test_time_without_checks_does_not_count():
    assert seen(("a", 10), ("a", 500)) == [0, 2]


def test_an_inconclusive_check_changes_nothing():
    timer = UnchangedTimer(5.0)
    timer.observe("a", 0)
    timer.observe("a", 3)

    assert timer.skip("a", 6) == 3
    assert timer.observe("a", 7) == 4


def test_an_inconclusive_check_still_notices_a_change():
    timer = UnchangedTimer(5.0)
    timer.observe("a", 0)
    timer.observe("a", 3)

    assert timer.skip("b", 6) == 0
    assert timer.observe("a", 7) == 0
