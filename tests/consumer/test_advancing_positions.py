"""A publisher that goes back in its shard ends the job, and says where (P1)."""

import re

import pytest

from recordpublisher.consumer.shard_consumer import AdvancingPositions
from recordpublisher.publishers.errors import PluginError
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

SHARD = Shard("orders", "shardId-0")


def number(text):
    """`7`, or `7-2` for the third sub-record of 7."""
    sequence, _, part = text.partition("-")
    return SequenceNumber(sequence, int(part)) if part else SequenceNumber(sequence)


def a_batch(records, position=None):
    """Records such as `5 6-0 6-1`; the position is that of the last of them."""
    found = [number(each) for each in records.split()]
    at = number(position) if position is not None else found[-1] if found else None
    return RecordBatch(
        SHARD, [UserRecord(b"", each.sequence, 0.0, "k", None, each.sub_sequence) for each in found], read_position=at
    )


def check(*batches, order_of=int, after=None):
    positions = AdvancingPositions("Lines", order_of, after and number(after))
    for each in batches:
        positions.check(a_batch(*each) if isinstance(each, tuple) else each)


def unordered(sequence):
    raise NotImplementedError("ids have no order")


@pytest.mark.parametrize(
    "batches",
    [
        [("9 10",), ("8 11",)],
        [("9 10",), ("11 12", "7")],
        [("9 10",), ("10 11",)],
        [("9 10-0 10-1",), ("10-1 10-2",)],
        [("9 10-0 10-1",), ("10-0 10-1 10-2",)],
        [("10-0 10-1", "10"), ("10-2",)],
        [("9 10",), ("", "9")],
    ],
    ids=["records", "position", "last record", "last part", "whole aggregate", "part of a done one", "empty batch"],
)
def test_a_batch_that_is_not_behind_the_last_position_is_refused(batches):
    check(*batches[:-1])
    with pytest.raises(PluginError, match="Lines goes back in orders/shardId-0: after the position 10"):
        check(*batches)


def test_a_sequence_number_that_could_not_be_stored_is_refused_with_the_limit():
    check(("1" * 256,))
    with pytest.raises(PluginError, match=r"which has 257 characters: the sequence number of a position may have 256"):
        check(("1" * 257,))


def test_the_error_names_both_positions():
    with pytest.raises(
        PluginError, match=re.escape("after the position 10 it gave 2 records from 8-1 on, with the position 9.")
    ):
        check(("10",), ("8-1 9",))


def test_batches_that_go_on_are_taken():
    continuation = RecordBatch(SHARD, [], read_position=SequenceNumber("1", continuation=True))
    check(("9 10-0 10-1",), ("10-2", "10"), ("", "10"), ("", "11"), RecordBatch(SHARD, []), continuation, ("12",))


@pytest.mark.parametrize(
    ("records", "position"), [("1 2 3", "2"), ("9 10-0 10-1", "10-0"), ("9 10", "10-0"), ("9 10-0 10-1", "9")]
)
def test_a_position_before_the_last_record_of_its_batch_is_refused(records, position):
    last = records.split()[-1]
    words = (
        f"Lines goes back in orders/shardId-0: it gave . records up to {last}, with the position {position}, and would"
    )
    for before in ([], [("0",)]):
        with pytest.raises(PluginError, match=words):
            check(*before, (records, position))


@pytest.mark.parametrize(
    ("records", "position"), [("1 2", "3"), ("9 10-0 10-1", "10"), ("10-1", "10-2"), ("8-1", "10-0")]
)
def test_a_position_behind_the_last_record_is_taken(records, position):
    check((records, position))
    check(("b c", "a"), order_of=unordered)


def test_a_position_that_is_that_of_the_last_record_is_not_ordered():
    ordered = []
    check(("3",), ("", "3"), order_of=lambda sequence: ordered.append(sequence) or int(sequence))
    assert ordered == ["3", "3"]


@pytest.mark.parametrize(("after", "records"), [("10", "1 2"), ("10-1", "10-0 10-1"), ("10", "10")])
def test_a_publisher_that_does_not_begin_behind_its_start_is_refused(after, records):
    with pytest.raises(PluginError, match=f"after the position {after} it gave"):
        check((records,), after=after)


def test_a_publisher_may_begin_inside_an_aggregate():
    check(("10-2 11",), after="10-1")


@pytest.mark.parametrize("order_of", [unordered, int, lambda sequence: object()])
def test_positions_without_an_order_must_only_change(order_of):
    check(("b",), ("a",), order_of=order_of)
    with pytest.raises(PluginError, match="after the position b"):
        check(("b",), ("b",), order_of=order_of)


def test_the_order_is_that_of_the_plugin():
    check(("zz",), ("aaa",), order_of=lambda sequence: (len(sequence), sequence))


def text_order(sequence):
    return sequence


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        ("3 2 4", "2 comes after 3"),
        ("10 9", "9 comes after 10"),
        ("9 11 10", "10 comes after 11"),
        ("12 12", "12 comes after 12"),
        ("5-1 5-0", "5-0 comes after 5-1"),
        ("9 10 11 10-0", "10-0 comes after 11"),
    ],
)
def test_records_in_the_wrong_order_inside_a_batch_are_refused(batch, told):
    with pytest.raises(
        PluginError, match=rf"Lines gave records of orders/shardId-0 in the wrong order: {told} in a batch"
    ):
        check((batch, "99"))


@pytest.mark.parametrize("batch", ["1", "9 10 11", "5-0 5-1 6", "99 100 101-0 101-1"])
def test_records_in_order_are_accepted_whatever_their_length(batch):
    check((batch,))


def test_an_order_of_the_plugin_is_asked_only_about_the_first_batches():
    asked = []

    def order_of(sequence):
        asked.append(sequence)
        return sequence

    check(*[(f"{first} {first + 1} {first + 2} {first + 3}",) for first in range(100, 180, 4)], order_of=order_of)
    of_ends = 20 * 6  # the first record, the last one and the position of each batch, each against another
    assert len(asked) <= of_ends + 3 * 6
    with pytest.raises(PluginError, match="b comes after c"):
        check(("a c b d",), order_of=text_order)


def test_records_that_an_order_cannot_tell_apart_are_left_alone():
    check(("x y z",), order_of=unordered)


def test_a_number_that_is_given_twice_is_refused_even_without_an_order():
    with pytest.raises(PluginError, match="in the wrong order: x comes after x in a batch"):
        check(("w x x", "x"), order_of=unordered)


@pytest.mark.parametrize("batches", [[("1 2",)], [("1",), ("2",)]])
def test_an_order_that_is_none_names_the_method_of_the_factory(batches):
    class Factory:
        def order_of(self, sequence):
            return None

    with pytest.raises(
        PluginError, match=r"^`Factory.order_of` returned None for '\d': return a key that can be compared"
    ):
        check(*batches, order_of=Factory().order_of)
