"""A2, W10: the global watermark is stalled only while there is something to emit."""

from recordpublisher.fetcher.monitoring.stall_detector import WatermarkStallDetector

from fakes.shard_entries import entry, watermarked


def held(shard_id="a"):
    made = entry(shard_id, watermark=50)
    made.push(watermarked(90))
    made.held_since = 0.0
    return made


def stands(looks, value=50):
    """Stalled seconds after checks one second apart, each `(entries, records emitted so far)`."""
    detector = WatermarkStallDetector(2.0)
    return [detector.update(value, *each, float(second)) for second, each in enumerate(looks)]


def test_records_held_back_make_a_stall():
    assert stands([([held()], 0)] * 4) == [0, 1, 2, 3]


def test_records_emitted_above_it_make_one_too():
    ahead = entry(watermark=60)
    assert stands([([ahead], count) for count in (1, 2, 3)]) == [0, 1, 2]


def test_a_stream_without_records_is_no_stall():
    ahead = entry(watermark=60)
    assert stands([([ahead], 1)] * 4) == [0, 0, 0, 0]


def test_records_below_it_do_not_count():
    behind = entry(watermark=40)
    assert stands([([behind], count) for count in (1, 2, 3)]) == [0, 0, 0]


def test_before_any_value_records_are_above_it():
    assert stands([([entry(watermark=1)], count) for count in (1, 2, 3)], value=None) == [0, 1, 2]


def test_a_rise_ends_it():
    detector = WatermarkStallDetector(2.0)
    for second in range(4):
        detector.update(50, [held()], 0, float(second))
    assert detector.update(51, [held()], 0, 4.0) == 0
    assert detector.seconds == 0
