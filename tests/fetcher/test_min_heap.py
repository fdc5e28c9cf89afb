"""The lowest of many changing values."""

from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.watermarks import IndexedMinHeap

KEYS = st.sampled_from("abcde")


@given(st.lists(st.tuples(KEYS, st.none() | st.integers(-5, 5)), max_size=400))
def test_the_lowest_is_the_minimum_of_the_current_values(changes):
    lowest, expected = IndexedMinHeap(), {}
    for key, value in changes:
        lowest.set(key, value)
        expected[key] = value
        known = [(each, name) for name, each in expected.items() if each is not None]
        assert lowest.lowest() == min(known, default=None)
        assert len(lowest) == len(known)


def test_replaced_values_do_not_pile_up():
    lowest = IndexedMinHeap()
    for value in range(10_000):
        lowest.set("a", -value)

    assert lowest.lowest() == (-9_999, "a")
    assert len(lowest._heap) < 100
