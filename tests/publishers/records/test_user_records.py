"""Records as they are decoded, and their columns."""

from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.publishers.records import to_millis


@given(st.integers(0, 4_102_444_800_000))
def test_seconds_of_the_service_are_converted_to_exact_milliseconds(millis):
    assert to_millis(millis / 1000) == millis
