"""A2: the global watermark is stalled only while there is something to emit; only checks that ran count."""

from recordpublisher.fetcher.monitoring.stuck_shards import UnchangedTimer, WatermarkStallDetector

from fakes.shard_entries import entry, watermarked


def held(shard_id="a"):
    made = entry(shard_id, watermark=50)
    made.reading.queue.push(watermarked(90))
    made.status.held_since = 0.0
    return made


def stalled_seconds(checks, value=50):
    """The result of checks one second apart, each `(entries, records emitted so far)`."""
    detector = WatermarkStallDetector(2.0)
    return [detector.update(value, *each, float(second)) for second, each in enumerate(checks)]


def test_records_held_back_make_a_stall():
    assert stalled_seconds([([held()], 0)] * 4) == [0, 1, 2, 3]


def test_records_emitted_above_the_watermark_make_a_stall():
    ahead = entry(watermark=60)
    assert stalled_seconds([([ahead], count) for count in (1, 2, 3)]) == [0, 1, 2]


def test_a_stream_without_records_is_no_stall():
    ahead = entry(watermark=60)
    assert stalled_seconds([([ahead], 1)] * 4) == [0, 0, 0, 0]


def test_records_below_the_watermark_do_not_count():
    behind = entry(watermark=40)
    assert stalled_seconds([([behind], count) for count in (1, 2, 3)]) == [0, 0, 0]


def test_before_the_first_global_watermark_every_record_is_above_it():
    assert stalled_seconds([([entry(watermark=1)], count) for count in (1, 2, 3)], value=None) == [0, 1, 2]


def test_a_rise_ends_the_stall():
    detector = WatermarkStallDetector(2.0)
    for second in range(4):
        detector.update(50, [held()], 0, float(second))
    assert detector.update(51, [held()], 0, 4.0) == 0
    assert detector.seconds == 0


def unchanged_seconds(*checks, max_gap=2.0):
    timer = UnchangedTimer(max_gap)
    return [timer.observe(value, now) for value, now in checks]


def test_the_time_adds_up_while_the_value_stays():
    assert unchanged_seconds(("a", 10), ("a", 11), ("a", 12.5)) == [0, 1, 2.5]


def test_another_value_starts_from_zero():
    assert unchanged_seconds(("a", 10), ("a", 11), ("b", 12), ("b", 13)) == [0, 1, 0, 1]


def test_time_without_checks_does_not_count():
    assert unchanged_seconds(("a", 10), ("a", 500)) == [0, 2]


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
