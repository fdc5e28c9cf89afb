"""`rp.to_arrow`: fields of typed values with the metadata, or the columns of Spark."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import recordpublisher as rp
from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA

from fakes.batches import batch


@dataclass
class Order:
    price: float
    shardId: str = "a"  # noqa: N815 - a field with the name of metadata


@dataclass
class Refund:
    amount: int


def typed(*values):
    return batch(*(b"x" for _ in values)).with_columns(values=list(values))


def test_a_payload_without_a_type_is_data_in_the_columns_of_spark():
    shown = rp.to_arrow(batch(b"a", b"b"))

    assert shown.schema == RECORD_SCHEMA
    assert shown["data"].to_pylist() == [b"a", b"b"]
    assert shown["sequenceNumber"].to_pylist() == ["1", "2"]


def test_several_batches_are_one():
    assert rp.to_arrow(batch(b"a"), batch(b"b", b"c"))["data"].to_pylist() == [b"a", b"b", b"c"]


def test_plain_values_of_json_stay_bytes():
    assert rp.to_arrow(typed({"price": 1})).schema == RECORD_SCHEMA


def test_the_fields_of_typed_values_come_first_and_hide_metadata_of_their_names():
    shown = rp.to_arrow(typed(Order(1.5), Order(2)))

    assert shown.schema.names == [
        "price",
        "shardId",
        *(name for name in RECORD_SCHEMA.names if name not in ("data", "shardId")),
    ]
    assert shown.select(["price", "shardId", "stream"]).to_pylist() == [
        {"price": 1.5, "shardId": "a", "stream": "orders"},
        {"price": 2.0, "shardId": "a", "stream": "orders"},
    ]


def test_an_empty_batch_has_the_columns_of_the_type_that_is_given():
    assert rp.to_arrow(batch(), into=Order).schema == rp.to_arrow(typed(Order(1))).schema
    assert rp.to_arrow(batch()).schema == RECORD_SCHEMA


def test_values_of_several_types_are_refused():
    with pytest.raises(rp.ConfigurationError, match="the values are of Order, Refund"):
        rp.to_arrow(typed(Order(1), Refund(2)))


def test_the_record_whose_value_has_no_place_is_named():
    with pytest.raises(
        rp.DeserializationError, match=r"record 2 of orders/shardId-0 .*field 'amount' of Refund"
    ) as raised:
        rp.to_arrow(typed(Refund(1), Refund(2**70), Refund(3)))
    assert raised.value.sequence_number == "2"
