"""The observed silence of a shard over several reads (W3)."""

from recordpublisher import Shard, StartingPosition
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.spark.source.batch_alignment import silent_ms_after
from recordpublisher.plugins.spark.source.batch_offset import ShardOffset
from recordpublisher.plugins.spark.source.read_claim import ShardReadRange

STATE = ShardState(StartingPosition.trim_horizon())


def entry(**more):
    return ShardOffset(Shard("s", "a"), STATE, **more)


def claim(**more):
    return ShardReadRange(STATE, STATE, began_ms=9_000, tip_seen_ms=(10_000, 15_000), **more)


def test_two_windows_at_the_tip_prove_the_time_between_them():
    assert silent_ms_after(entry(silent_ms=500, tip_ms=8_000), claim(at_tip=True, behind_ms=0, silent_ms=100)) == 2_600


def test_a_window_without_a_response_changes_nothing():
    assert silent_ms_after(entry(silent_ms=4_000, tip_ms=8_000), claim()) == 4_000


def test_records_or_a_moved_tip_reset_the_silence():
    assert silent_ms_after(entry(silent_ms=4_000, tip_ms=8_000), claim(records=1, at_tip=True, behind_ms=0)) == 0
    assert silent_ms_after(entry(silent_ms=4_000, tip_ms=8_000), claim(behind_ms=900)) == 0
    assert (
        silent_ms_after(entry(silent_ms=4_000, tip_ms=8_000), claim(past_event_time=True, behind_ms=0, at_tip=True))
        == 0
    )
