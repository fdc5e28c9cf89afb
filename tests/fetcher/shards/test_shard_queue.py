"""Batches without records are not piled up, and lose nothing that a sink must be told."""

from dataclasses import replace

from recordpublisher.fetcher.shards.read_state import ShardQueue
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import SkippedRecords

from fakes.batches import batch


def test_an_accepted_gap_is_kept_when_its_batch_gives_way_to_the_next_one_without_records():
    queue = ShardQueue()
    queue.push(replace(batch(), read_position=SequenceNumber("1"), after_gap=True))
    queue.push(replace(batch(), read_position=SequenceNumber("2")))
    assert [(each.read_position, each.after_gap) for each in queue] == [(SequenceNumber("2"), True)]


def test_only_the_first_slice_of_a_batch_is_behind_its_gap():
    gap = replace(batch(b"a", b"b"), after_gap=True)
    assert [gap.slice(0, 1).after_gap, gap.slice(1, 2).after_gap] == [True, False]


def skipped(number, count=2):
    """A batch of which all records were skipped."""
    return replace(batch(), read_position=SequenceNumber(str(number)), skipped=(SkippedRecords(0, count, str(number)),))


def marker(number):
    return replace(batch(), read_position=SequenceNumber(str(number), continuation=True))


def test_skipped_records_keep_their_number_and_position_while_a_sink_stalls_and_take_no_more_memory():  # P6
    queue, held = ShardQueue(), set()
    for number in range(100):
        queue.push(skipped(number))
        held.add((len(queue), queue.bytes, len(queue[0].skipped)))
    part, _ = queue.pop(0)
    assert (part.skipped_count, part.read_position) == (200, SequenceNumber("99"))
    assert len(held) == 1
    assert (len(queue), queue.bytes) == (0, 0)


def test_a_continuation_does_not_replace_the_position_of_skipped_records():  # F6
    queue, lengths = ShardQueue(), set()
    for number in range(100):
        queue.push(skipped(number))
        queue.push(marker(f"continue-{number}"))
        queue.push(marker(f"again-{number}"))
        lengths.add(len(queue))
    assert lengths == {2}
    first, second = queue.pop(0)[0], queue.pop(0)[0]
    assert (first.skipped_count, first.read_position) == (200, SequenceNumber("99"))
    assert second.read_position == SequenceNumber("again-99", continuation=True)
    assert queue.bytes == 0


def test_skipped_records_before_and_after_others_keep_their_places():
    queue = ShardQueue()
    queue.push(skipped(1))
    queue.push(replace(batch(b"a", b"b", first=2), skipped=(SkippedRecords(1, 3, "2"),)))
    queue.push(skipped(9))
    assert [queue.pop(count)[0].skipped_count for count in (0, 1, 1, 0)] == [2, 0, 3, 2]
