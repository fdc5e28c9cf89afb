"""Batches without records are not piled up, and lose nothing that a sink must be told."""

from dataclasses import replace

from recordpublisher.fetcher.shards.read_state import ShardQueue
from recordpublisher.publishers.positions import SequenceNumber

from fakes.batches import batch


def test_an_accepted_gap_is_kept_when_its_batch_gives_way_to_the_next_one_without_records():
    queue = ShardQueue()
    queue.push(replace(batch(), read_position=SequenceNumber("1"), after_gap=True))
    queue.push(replace(batch(), read_position=SequenceNumber("2")))
    assert [(each.read_position, each.after_gap) for each in queue] == [(SequenceNumber("2"), True)]


def test_only_the_first_slice_of_a_batch_is_behind_its_gap():
    gap = replace(batch(b"a", b"b"), after_gap=True)
    assert [gap.slice(0, 1).after_gap, gap.slice(1, 2).after_gap] == [True, False]
