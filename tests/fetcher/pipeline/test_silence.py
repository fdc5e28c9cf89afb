"""The observed silence of a shard over several reads (W3)."""

from __future__ import annotations

import pytest

from recordpublisher.fetcher.pipeline.retention_gaps import ShardObservation, Silence

BEFORE = Silence(4_000, tip_ms=8_000)


def seen(**more: object) -> ShardObservation:
    return ShardObservation(tip_seen_ms=(10_000, 15_000), **more)


def test_two_reads_at_the_tip_prove_the_time_between_them():
    after = Silence(500, 8_000).after(seen(at_tip=True, behind_ms=0, silent_ms=100), records=0)
    assert after == Silence(500 + 2_000 + 100, 15_000)


def test_after_a_first_read_at_the_tip_its_own_silence_counts():
    assert Silence().after(seen(at_tip=True, behind_ms=0, silent_ms=100), records=0) == Silence(100, 15_000)


def test_a_read_without_a_response_changes_nothing():
    assert BEFORE.after(seen(), records=0) == BEFORE


@pytest.mark.parametrize(
    ("observed", "records", "tip_ms"),
    [
        (seen(at_tip=True, behind_ms=0), 1, 15_000),
        (seen(behind_ms=900), 0, None),
        (seen(past_event_time=True, behind_ms=0, at_tip=True), 0, 15_000),
    ],
)
def test_records_or_a_read_that_ended_before_the_tip_reset_the_silence(observed, records, tip_ms):
    assert BEFORE.after(observed, records) == Silence(0, tip_ms)
