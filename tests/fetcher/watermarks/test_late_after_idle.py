"""W13: records late only because their shard was not waited for are counted; those late in their shard are not."""

from dataclasses import replace

from recordpublisher.fetcher.shards.shard_entry import count_late_after_idle

from fakes.shard_entries import watermarked


def batch_of(times, watermarks):
    return replace(watermarked(*watermarks), event_times=times)


def test_a_shard_that_held_the_watermark_has_no_late_records():
    assert count_late_after_idle(batch_of([10], [70]), shard_watermark=60, global_watermark=60) == 0


def test_before_there_is_a_global_watermark_nothing_is_late():
    assert count_late_after_idle(watermarked(1, 2), shard_watermark=None, global_watermark=None) == 0


def test_the_late_records_of_a_shard_that_was_idle_are_those_below_the_global_watermark():
    assert count_late_after_idle(watermarked(50, 59, 60, 61), shard_watermark=40, global_watermark=60) == 2


def test_a_shard_without_a_watermark_did_not_hold_the_watermark():
    assert count_late_after_idle(watermarked(50, 70), shard_watermark=None, global_watermark=60) == 1


def test_a_record_that_is_late_in_its_own_shard_is_not_counted():
    assert count_late_after_idle(batch_of([50, 45, 30], [50, 50, 50]), shard_watermark=40, global_watermark=60) == 1


def test_once_the_shard_has_caught_up_records_are_late_in_their_own_shard():
    assert count_late_after_idle(batch_of([65, 50, 59], [65, 65, 65]), shard_watermark=40, global_watermark=60) == 0
