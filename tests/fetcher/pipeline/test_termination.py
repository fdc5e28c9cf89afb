"""S8: what ends a bounded run, and exactly where."""

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason, TerminationCondition
from recordpublisher.fetcher.shards.shard_entry import ShardStage

from fakes.shard_entries import entry, shard, watermarked


def condition(*entries, **bounds):
    made = TerminationCondition(Bounds(**bounds))
    for each in entries:
        made.update(each)
    return made


def test_without_bounds_nothing_ends():
    assert condition(entry(stage=ShardStage.ENDED)).end_reason() is None


def test_the_number_of_records_is_exact():
    one, made = entry(), condition(max_records=5)
    assert made.max_emittable(one, 3) == 3
    made.count_emitted(one, watermarked(1, 2, 3))
    assert made.max_emittable(one, 3) == 2
    assert made.end_reason() is None
    made.count_emitted(one, watermarked(1, 2))

    assert made.end_reason() is EndReason.MAX_RECORDS


def test_the_batch_that_crosses_the_bytes_is_the_last():
    made = condition(max_bytes=5)
    made.count_emitted(entry(), watermarked(1))
    assert made.end_reason() is None
    made.count_emitted(entry(), watermarked(1))

    assert made.end_reason() is EndReason.MAX_BYTES


def test_the_tip_is_reached_when_every_shard_was_read_to_it_and_has_emitted():
    a, b = entry("a"), entry("b")
    made = condition(a, b, stop_at_tip=True)
    a.reading.has_seen_tip = b.reading.has_seen_tip = True
    b.reading.queue.push(watermarked(1))
    made.update(a)
    made.update(b)
    assert made.end_reason() is None
    assert not made.holds_watermark(a)
    assert made.holds_watermark(b)
    b.reading.queue.pop(1)
    made.update(b)

    assert made.end_reason() is EndReason.TIP


def test_a_shard_with_new_records_is_not_done_any_more():
    one = entry()
    one.reading.has_seen_tip = True
    made = condition(one, entry("b"), stop_at_tip=True)
    one.reading.queue.push(watermarked(1))
    made.update(one)

    assert made.holds_watermark(one)


def test_a_shard_is_read_until_its_tip_and_no_further():
    one, made = entry(), condition(stop_at_tip=True)
    one.reading.queue.push(watermarked(1))
    assert made.needs_more_reads(one)
    one.reading.has_seen_tip = True

    assert not made.needs_more_reads(one)
    assert condition().needs_more_reads(one)


def test_a_closed_shard_is_read_to_its_end_instead_of_a_tip():  # S2
    one = entry()
    one.shard, one.reading.has_seen_tip = shard("a", closed=True), True
    made = condition(one, stop_at_tip=True)

    assert made.needs_more_reads(one)
    assert made.end_reason() is None


def test_nothing_is_read_past_a_shards_limit_or_the_event_time():
    limited, late = entry("a"), entry("b")
    late.reading.queue.push(watermarked(8))
    made = condition(shard_limits={"s/a": 1}, until_event_time=7)
    made.count_emitted(limited, watermarked(1))

    assert not made.needs_more_reads(limited)
    assert not made.needs_more_reads(late)


def test_an_ended_shard_is_done_and_a_waiting_one_does_not_count():
    made = condition(entry("a", stage=ShardStage.ENDED), entry("b", "x", stage=ShardStage.WAITING), stop_at_tip=True)

    assert made.end_reason() is EndReason.TIP


def test_a_shard_whose_next_record_is_past_the_event_time_is_done_and_holds_the_others():  # W1
    one = entry()
    one.reading.queue.push(watermarked(8))
    made = condition(one, until_event_time=7)

    assert made.end_reason() is EndReason.EVENT_TIME
    assert made.holds_watermark(one)


def test_shard_limits_are_exact_and_the_others_unlimited():
    a, b = entry("a"), entry("b")
    made = condition(a, b, shard_limits={"s/a": 2})
    assert (made.max_emittable(a, 9), made.max_emittable(b, 9)) == (2, 9)
    made.count_emitted(a, watermarked(1, 2))
    made.update(a)

    assert not made.may_emit(a)
    assert made.may_emit(b)
    assert made.end_reason() is None


def test_the_run_does_not_wait_for_a_removed_shard():
    made = condition(entry("a", stage=ShardStage.ENDED), entry("b"), stop_at_tip=True)
    made.remove("s/b")

    assert made.end_reason() is EndReason.TIP


@pytest.mark.parametrize("bounds", [{"max_records": 0}, {"max_bytes": 0}])
def test_a_bound_of_zero_ends_the_run_at_once(bounds):
    assert condition(**bounds).end_reason() is not None
