"""W1: the sink's watermark: the lowest emitted one, never falling, never above the global one."""

from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.watermarks import LocalWatermark

from fakes.shard_entries import entry, watermarked

SHARDS = st.dictionaries(st.sampled_from("abc"), st.tuples(st.none() | st.integers(0, 50), st.booleans()), max_size=3)


def local(**watermarks):
    made = LocalWatermark()
    for shard_id, watermark in watermarks.items():
        made.update(entry(shard_id, watermark=watermark))
    return made


@given(st.lists(st.tuples(SHARDS, st.none() | st.integers(0, 50)), max_size=10))
def test_the_watermark_never_falls_and_is_never_above_an_emitted_or_the_global_one(steps):
    made, told, known = LocalWatermark(), [], {}
    for shards, global_watermark in steps:
        for shard_id, (watermark, is_idle) in shards.items():
            one = known[shard_id] = entry(shard_id, watermark=watermark)
            one.reading.is_idle = is_idle
            made.update(one)
        value = made.advance(global_watermark)
        if value is not None:
            active = [one.state.watermark for one in known.values() if not one.reading.is_idle]
            assert value <= min(active)
            assert value <= global_watermark
            told.append(value)
    assert told == sorted(set(told))


def test_the_watermark_is_the_lowest_emitted_one():
    assert local(a=5, b=3).advance(100) == 3


def test_there_is_none_before_the_first_global_watermark():
    assert local(a=5).advance(None) is None


def test_a_shard_that_has_emitted_nothing_holds_the_watermark():  # W2
    assert local(a=5, b=None).advance(100) is None


def test_queued_records_do_not_count():
    made, one = LocalWatermark(), entry("a", watermark=5)
    one.reading.queue.push(watermarked(90))
    made.update(one)

    assert made.advance(100) == 5


def test_the_same_value_is_returned_once():
    made = local(a=5)

    assert [made.advance(100), made.advance(100)] == [5, None]
    assert made.value == 5


def test_idleness_is_returned_once_each_time():
    made, one = LocalWatermark(), entry("a", watermark=5)
    told = []
    for idle in (True, True, False, True):
        one.reading.is_idle = idle
        made.update(one)
        made.advance(100)
        told.append(made.take_idle_transition())

    assert told == [True, False, False, True]


def test_a_removed_shard_holds_no_watermark():
    made = local(a=5, b=None)
    made.remove("s/b")

    assert made.advance(100) == 5
