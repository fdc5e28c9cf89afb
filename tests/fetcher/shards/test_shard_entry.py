"""ShardEntry: queue, emitted position, end of a shard."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.shards.read_state import ReadMoment
from recordpublisher.fetcher.shards.shard_entry import ShardStage
from recordpublisher.publishers.errors import ImpossibleStateError
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import PoisonedRecord, RecordBatch, UserRecord

from fakes.shard_entries import Notices, entry, marker, watermarked


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=6), st.lists(st.integers(1, 4), min_size=60, max_size=60)
)
def test_every_pushed_record_is_popped_once_in_order_with_its_bytes(batches, counts):
    one, pushed, popped, freed = entry(), 0, [], 0
    for times in batches:
        batch = watermarked(*times, first=pushed)
        pushed += len(batch)
        one.reading.queue.push(batch)
    held = one.reading.queue.bytes
    for count in counts:
        if one.reading.queue:
            part, given_back = one.take(min(count, len(one.reading.queue[0]) - one.reading.queue._offset))
            popped += [int(record.sequence_number) for record in part.records]
            freed += given_back
            assert one.reading.queue.records == pushed - len(popped)

    assert popped == list(range(pushed))
    assert (freed, one.reading.queue.bytes, bool(one.reading.queue)) == (held, 0, False)


def test_the_position_moves_behind_what_was_emitted():  # S1
    one = entry()
    one.reading.queue.push(watermarked(10, 20, 30))
    part, _ = one.take(2)
    one.advance(part, global_watermark=None, now_ms=5)

    assert (one.state.position, one.state.watermark, one.state.arrival_ms) == (SequenceNumber("1"), 20, 1000)
    assert (one.emission.records, one.emission.last_emit_ms) == (2, 5)
    assert one.next_watermark == 30


def test_a_marker_moves_the_continuation_only():  # F6
    one = entry()
    one.emission.state = replace(one.state, position=SequenceNumber("3"), watermark=8)
    one.advance(marker("7"), global_watermark=None, now_ms=5)

    assert (one.state.position, one.state.continuation, one.state.watermark) == (SequenceNumber("3"), "7", 8)
    assert one.emission.last_emit_ms is None


def test_a_record_after_a_marker_makes_its_continuation_obsolete():  # F6
    one = entry()
    one.advance(marker("7"), global_watermark=None, now_ms=5)
    one.advance(watermarked(1, first=9), global_watermark=None, now_ms=5)

    assert one.state.continuation is None


def test_a_batch_whose_records_were_all_dropped_moves_the_position():  # P1, S7
    one = entry()
    one.advance(replace(watermarked(), read_position=SequenceNumber("4")), global_watermark=None, now_ms=5)

    assert one.state.position == SequenceNumber("4")


def test_a_shard_ends_with_its_last_emission():  # S2
    one = entry(stage=ShardStage.DRAINING)
    one.reading.queue.push(watermarked(1, 2))
    first, _ = one.take(1)
    one.advance(first, global_watermark=None, now_ms=5)
    assert (one.stage, one.state.ended) == (ShardStage.DRAINING, False)
    last, _ = one.take(1)
    one.advance(last, global_watermark=None, now_ms=5)

    assert (one.stage, one.state.ended) == (ShardStage.ENDED, True)


def test_an_idle_shard_counts_again_when_records_are_queued_but_not_for_a_marker():  # W4
    one = entry()
    one.reading.is_idle = True
    one.reading.queue.push(marker())
    assert not one.is_active
    one.reading.queue.push(watermarked(1))

    assert one.is_active


def test_watermarks_wait_for_the_children_of_a_straggler_too():  # W5, W12
    one = entry(stage=ShardStage.ENDED)
    one.mark_straggler(True)
    assert not one.is_active
    one.await_children(True)

    assert one.is_active


def test_dropping_what_is_unread_frees_every_byte_of_the_queue():
    one = entry()
    one.reading.queue.push(watermarked(1, 2))
    held = one.reading.queue.bytes

    assert one.drop_unread() == held > 0
    assert (one.reading.queue.bytes, one.reading.queue.records, len(one.reading.queue)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("done", "behind", "expected"), [(1, 0, 5000), (2, 200, 2200), (0, 0, 5000), (1, -1, -1), (3, 7, 7)]
)
def test_dropped_records_count_as_distance_to_the_tip_again(done, behind, expected):
    """A task of Spark with a limit reads whole responses, and returns a part; so does a bounded run."""
    one, batch = entry(), watermarked(1, 2, 3)
    records = [UserRecord(b"data", str(number), arrival) for number, arrival in enumerate([1.0, 4.0, 6.0])]
    batch = replace(batch, records=records)
    one.metrics.saw_distance(behind)
    one.reading.queue.push(batch)
    if done:
        part, _ = one.take(done)
        one.advance(part, global_watermark=None, now_ms=5)
    one.drop_unread()

    assert one.metrics.millis_behind_latest == expected


def test_a_shard_whose_end_was_read_is_read_again_when_its_last_records_are_dropped():  # E5
    one = entry(stage=ShardStage.DRAINING, listener=(notices := Notices()))
    one.reading.queue.push(watermarked(1))
    notices.changed.clear()
    one.drop_unread()

    assert (one.stage, one.needs_reader, notices.changed) == (ShardStage.READING, True, [one])


def test_a_shard_has_not_ended_while_its_last_batch_is_being_written_nor_when_that_has_failed():  # S2
    one = entry(listener=(notices := Notices()))
    one.reading.queue.push(watermarked(1))
    batch, _ = one.take(1)
    one.end_of_reading(())
    assert (one.stage, notices.ended) == (ShardStage.DRAINING, [])
    one.advance(batch, global_watermark=None, now_ms=5)

    assert (one.stage, notices.ended) == (ShardStage.ENDED, [one])


@pytest.mark.parametrize("stage", [ShardStage.DRAINING, ShardStage.ENDED])
def test_a_wrong_order_is_an_impossible_state(stage):  # F11
    one = entry(stage=stage)
    with pytest.raises(ImpossibleStateError, match="s/a is read again although it is"):
        one.start_reading()
    with pytest.raises(ImpossibleStateError, match="s/a is read to its end although it is"):
        one.end_of_reading(())


def test_nothing_follows_from_what_happens_to_a_removed_shard():
    one = entry(stage=ShardStage.DRAINING, listener=(notices := Notices()))
    one.reading.queue.push(watermarked(1))
    batch, _ = one.take(1)
    notices.changed.clear()
    one.remove()
    one.advance(batch, global_watermark=None, now_ms=5)

    assert (notices.changed, notices.ended, one.state.ended) == ([], [], True)


def test_of_several_markers_in_a_row_one_is_kept():  # P6
    one = entry()
    one.reading.queue.push(watermarked(1))
    one.reading.queue.push(marker("7"))
    freed = one.reading.queue.push(marker("9"))

    assert freed == marker().held_bytes
    assert [len(batch) for batch in one.reading.queue] == [1, 0]
    assert one.reading.queue[-1] == marker("9")
    assert one.reading.queue.bytes == watermarked(1).held_bytes + freed


def test_a_marker_behind_records_and_records_behind_a_marker_stay():  # F6
    one = entry()
    for batch in (marker("1"), watermarked(1), marker("2"), watermarked(2)):
        assert one.reading.queue.push(batch) == 0

    assert len(one.reading.queue) == 4


def test_dead_letters_without_other_records_are_kept_while_a_sink_stalls():  # S7
    one = entry()
    poisoned = PoisonedRecord(0, UserRecord(b"{", "1"), "no JSON")
    first, second = replace(marker("7"), poisoned=(poisoned,)), replace(marker("8"), poisoned=(poisoned,))
    one.reading.queue.push(first)
    one.reading.queue.push(second)

    assert [one.take(0)[0] for _ in range(2)] == [first, second]


def empty_read_at(ms):
    return ReadMoment(ms, ms / 1000, 0.0, ms)


def test_a_tip_is_not_seen_beside_a_record_that_is_being_written():  # S5
    made = entry("a")
    made.on_read(watermarked(5), empty_read_at(1_000))
    made.take(1)
    made.on_read(RecordBatch(made.shard, (), 0), empty_read_at(2_000))
    assert made.snapshot_state.tip_ms is None


def test_a_tip_is_not_seen_beside_a_dead_letter_that_waits():  # S5
    made = entry("a")
    poisoned = (PoisonedRecord(0, UserRecord(b"x", "1", 1.0), "no number"),)
    made.on_read(
        RecordBatch(made.shard, (), 0, SequenceNumber("1"), raw_count=1, poisoned=poisoned), empty_read_at(1_000)
    )
    made.on_read(RecordBatch(made.shard, (), 0), empty_read_at(2_000))
    assert made.snapshot_state.tip_ms is None
