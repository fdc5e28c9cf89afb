"""What a plugin's publisher, deserializer or watermark strategy gives is refused with its class if it could not be used."""

from collections import deque
from dataclasses import replace

import pytest

import recordpublisher as rp
from recordpublisher.consumer.deserialization import call_for_items
from recordpublisher.consumer.shard_consumer import check_types

from fakes.batches import batch

BATCH = rp.RecordBatch(
    rp.Shard("orders", "a"), [rp.UserRecord(b"1", "5", 1.7e9, "k")], read_position=rp.SequenceNumber("5"), raw_count=1
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"raw_bytes": -1}, "`raw_bytes` of orders/a that is negative"),
        ({"millis_behind_latest": -5}, "`millis_behind_latest` of orders/a that is negative"),
        ({"raw_count": -1}, "`raw_count` of orders/a that is negative"),
        ({"read_position": rp.SequenceNumber("5", "1")}, r"`read_position\.sub_sequence` of orders/a that is '1'"),
        ({"records": [rp.UserRecord(b"1", "", 1.7e9, "k")]}, "a record with an empty `sequence_number` of orders/a"),
    ],
)
def test_a_batch_that_could_not_be_resumed_or_counted_is_refused(change, words):
    check_types("Lines", BATCH)
    with pytest.raises(rp.PluginError, match=words):
        check_types("Lines", replace(BATCH, **change))


@pytest.mark.parametrize("records", [{1: 2}.values(), {1, 2}, iter(())])
def test_records_without_an_order_are_refused(records):
    with pytest.raises(rp.PluginError, match="give a list of UserRecord"):
        rp.RecordBatch(rp.Shard("orders", "a"), records)


def test_records_of_a_deque_can_be_cut():
    records = deque(rp.UserRecord(b"1", str(number)) for number in range(4))
    assert rp.RecordBatch(rp.Shard("orders", "a"), records).slice(1, 3).sequence_numbers == ["1", "2"]


class Strategy:
    """Returns what it was made with from each method."""

    def __init__(self, result):
        self.result = result

    def times(self, given):
        return self.result

    values = advance = times


@pytest.mark.parametrize(
    ("method", "what", "result", "words"),
    [
        ("times", "time", [1.5, 2], "returned the type float as time: it must be epoch ms as an int"),
        ("times", "time", ["x", "y"], "returned the type str as time"),
        ("advance", "watermark", None, "returned a NoneType for 2 records"),
        ("advance", "watermark", [1], "returned 1 items for 2 records"),
        ("values", "value", {1: 2, 3: 4}.values(), "returned a dict_values for 2 records"),
    ],
)
def test_items_that_fit_no_records_are_refused(method, what, result, words):
    with pytest.raises(rp.PluginError, match=rf"`Strategy\.{method}` {words}"):
        call_for_items(Strategy(result), method, what, batch(b"1", b"2"), [7, 8])


@pytest.mark.parametrize("result", [[1, 2], deque([1, 2])])
def test_items_are_copied_so_that_the_plugin_may_change_its_list(result):
    items = call_for_items(Strategy(result), "values", "value", batch(b"1", b"2"))
    result.clear()
    assert items == (1, 2)


async def decoded():
    """Stand for a lookup."""


def test_values_that_are_coroutines_are_refused_because_their_code_never_ran():
    with pytest.raises(
        rp.PluginError, match=r"`Strategy\.values`: .* returned a coroutine, and none of its code has run"
    ):
        call_for_items(Strategy([decoded(), decoded()]), "values", "value", batch(b"1", b"2"))
