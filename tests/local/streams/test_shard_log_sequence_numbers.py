import pytest

from recordpublisher.local.streams.shard_log import SequenceNumbers


def test_a_sequence_number_has_56_digits_and_contains_its_counter():
    numbers = SequenceNumbers.of_shard(1_700_000_000_000, 7)
    text = numbers.text(42)
    assert len(text) == 56
    assert numbers.counter(text) == 42


def test_a_child_has_greater_numbers_than_its_parent():
    parent, child = SequenceNumbers.of_shard(100, 9), SequenceNumbers.of_shard(101, 0)
    assert int(parent.text(10**19)) < int(child.text(0))


@pytest.mark.parametrize("foreign", ["0", "49", "x" * 56, SequenceNumbers.of_shard(1, 2).text(3)])
def test_a_number_of_another_shard_has_no_counter(foreign: str):
    assert SequenceNumbers.of_shard(1, 1).counter(foreign) is None
