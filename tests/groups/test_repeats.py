"""Which repeats a fault explains."""

import pytest

from groups.readers import moves
from groups.repeats import check_order, check_repeats, repeats
from groups.worker_group import Written


def lines(*times, shard="s", first=1):
    """A record at each time, numbered from `first`."""
    return [Written(float(seconds), shard, str(number)) for number, seconds in enumerate(times, first)]


def test_a_record_is_repeated_when_it_is_written_twice():
    assert repeats({"a": lines(1, 2), "b": lines(5, 6, first=2)}) == {"2": ["a", "b"]}


def test_what_was_written_last_before_a_fault_may_be_repeated():
    assert check_repeats({"a": lines(1, 2), "b": lines(5, 6, first=2)}, {"a": 3.0}) == 1


def test_without_a_fault_nothing_may_be_repeated():
    with pytest.raises(AssertionError, match=r"repeated without a fault: .*a.*b"):
        check_repeats({"a": lines(1, 2), "b": lines(5, 6, first=2)}, {})


def test_what_was_written_before_the_last_checkpoint_may_not_be_repeated():
    with pytest.raises(AssertionError, match="from before its last checkpoint"):
        check_repeats({"a": lines(1, 2), "b": lines(5), "c": []}, {"a": 3.0})


def test_after_a_suspension_one_write_may_be_a_repeat():
    assert check_repeats({"a": lines(1, 9), "b": lines(5, 6, first=2)}, {"a": 3.0}) == 1
    with pytest.raises(AssertionError, match="repeated without a fault"):
        check_repeats({"a": lines(1, 9, 10), "b": lines(5, 6, first=2)}, {"a": 3.0})


def test_a_fenced_process_and_its_successor_may_each_be_the_first_to_write_a_record():
    written = {"back": lines(1, 2, 6), "again": lines(4, 5, first=2)}
    assert check_repeats(written, {"back": 3.0}, until={"back": 7.0}) == 2
    with pytest.raises(AssertionError, match="from before its last checkpoint"):
        check_repeats(written, {"back": 7.0})


def test_order_is_that_of_the_first_write():
    check_order({"a": lines(1, 2, 3), "b": lines(4, 5, first=2)})
    with pytest.raises(AssertionError, match="was written after"):
        check_order({"a": lines(5), "b": lines(4, first=2)})


def test_a_move_is_a_change_of_the_reader():
    written = {"a": lines(1, 2), "b": lines(5, first=3)}
    assert [(move.giver, move.taker, move.seconds) for move in moves(written)] == [("a", "b", 3.0)]
