"""ShardEntry: queue, emitted position, end of a shard."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.shards.shard_entry import ShardStage
from recordpublisher.publishers.positions import SequenceNumber

from fakes.shard_entries import entry, marker, watermarked


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=6), st.lists(st.integers(1, 4), min_size=60, max_size=60)
)
def test_every_pushed_record_is_popped_once_in_order_with_its_bytes(batches, counts):
    one, pushed, popped, freed = entry(), 0, [], 0
    for times in batches:
        batch = watermarked(*times, first=pushed)
        pushed += len(batch)
        one.push(batch)
    held = one.queued_bytes
    for count in counts:
        if one.queue:
            part, given_back = one.pop(min(count, len(one.queue[0]) - one.offset))
            popped += [int(record.sequence_number) for record in part.records]
            freed += given_back
            assert one.queued_records == pushed - len(popped)

    assert popped == list(range(pushed))
    assert (freed, one.queued_bytes, bool(one.queue)) == (held, 0, False)


def test_the_position_moves_behind_what_was_emitted():  # S1
    one = entry()
    one.push(watermarked(10, 20, 30))
    part, _ = one.pop(2)
    one.advance(part, now_ms=5)

    assert (one.state.position, one.state.watermark, one.state.arrival_ms) == (SequenceNumber("1"), 20, 1000)
    assert (one.records, one.last_emit_ms) == (2, 5)
    assert one.next_watermark == 30


def test_a_marker_moves_the_continuation_only():  # F6
    one = entry()
    one.state = replace(one.state, position=SequenceNumber("3"), watermark=8)
    one.advance(marker("7"), now_ms=5)

    assert (one.state.position, one.state.continuation, one.state.watermark) == (SequenceNumber("3"), "7", 8)
    assert one.last_emit_ms is None


def test_a_record_after_a_marker_makes_its_continuation_obsolete():  # F6
    one = entry()
    one.advance(marker("7"), 5)
    one.advance(watermarked(1, first=9), 5)

    assert one.state.continuation is None


def test_a_batch_whose_records_were_all_dropped_moves_the_position():  # P1, S7
    one = entry()
    one.advance(replace(watermarked(), read_position=SequenceNumber("4")), 5)

    assert one.state.position == SequenceNumber("4")


def test_a_shard_ends_with_its_last_emission():  # S2
    one = entry(stage=ShardStage.DRAINING)
    one.push(watermarked(1, 2))
    first, _ = one.pop(1)
    one.advance(first, 5)
    assert (one.stage, one.state.ended) == (ShardStage.DRAINING, False)
    last, _ = one.pop(1)
    one.advance(last, 5)

    assert (one.stage, one.state.ended) == (ShardStage.ENDED, True)


def test_an_idle_shard_counts_again_when_records_are_queued_but_not_for_a_marker():  # W4
    one = entry()
    one.idle = True
    one.push(marker())
    assert not one.is_active
    one.push(watermarked(1))

    assert one.is_active


def test_dropping_the_queue_frees_every_byte():
    one = entry()
    one.push(watermarked(1, 2))
    one.reserved_bytes = 100
    held = one.queued_bytes + 100

    assert one.drop_queue() == held
    assert (one.queued_bytes, one.queued_records, one.reserved_bytes, len(one.queue)) == (0, 0, 0, 0)


def test_of_several_markers_in_a_row_one_is_kept():  # P6
    one = entry()
    one.push(watermarked(1))
    one.push(marker("7"))
    freed = one.push(marker("9"))

    assert freed == marker().held_bytes
    assert [len(batch) for batch in one.queue] == [1, 0]
    assert one.queue[-1] == marker("9")
    assert one.queued_bytes == watermarked(1).held_bytes + freed


def test_a_marker_behind_records_and_records_behind_a_marker_stay():  # F6
    one = entry()
    for batch in (marker("1"), watermarked(1), marker("2"), watermarked(2)):
        assert one.push(batch) == 0

    assert len(one.queue) == 4
