"""W6: the global watermark of a process that reads every shard."""

from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.watermarks import OwnWatermark, ShardsStatus

ACTIVE, IDLE = ShardsStatus.ACTIVE, ShardsStatus.IDLE
REPORTS = st.tuples(st.sampled_from([ACTIVE, IDLE]), st.none() | st.integers(0, 100))


def test_it_is_the_lowest_watermark_of_the_shards():
    own = OwnWatermark()

    assert own.current() is None
    assert own.report(ACTIVE, 5) == 5
    assert own.report(ACTIVE, 7) == own.current() == 7


def test_a_shard_without_a_watermark_keeps_it_from_rising():  # W2
    own = OwnWatermark()

    assert own.report(ACTIVE, None) is None
    own.report(ACTIVE, 5)
    assert own.report(ACTIVE, None) == 5


def test_idle_shards_do_not_count():  # FLINK-29099
    own = OwnWatermark()
    own.report(ACTIVE, 5)

    assert own.report(IDLE, None) == 5
    assert own.report(ACTIVE, 90) == 90


def test_a_start_begins_at_the_lowest_restored_watermark_and_moves_nothing_back():
    own = OwnWatermark()
    own.start_at(50)
    assert own.report(ACTIVE, 20) == 50
    own.start_at(None)
    own.start_at(7)

    assert own.current() == 50


@given(st.lists(REPORTS))
def test_it_never_falls_and_rises_only_to_what_was_reported(reports):
    own, seen = OwnWatermark(), []
    for status, watermark in reports:
        seen.append(own.report(status, watermark))

    known = [each for each in seen if each is not None]
    assert known == sorted(known)
    assert set(known) <= {watermark for status, watermark in reports if status is ACTIVE}
