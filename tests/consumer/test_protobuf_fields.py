"""The fields of Protobuf messages: as values of Python, and as JSON."""

from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf import json_format
from protobuf_order import Free, Item, Order, Tree

from recordpublisher.consumer.typed_values import fields_of_message, has_fields, plain_value

AT = datetime(2026, 11, 26, 6, tzinfo=UTC)
ORDER = Order(
    id=2**40, price=1.5, raw=b"\xff", kind=1, first=Item(name="tea"), items=[Item(name="cup", kinds=[0, 1])],
    counts={"a": Item(name="x")}, at=AT, took=timedelta(seconds=2), note={"value": "ok"}, paid=False,
)  # fmt: skip


def taken(message):
    return {field.name: field.take(message) for field in fields_of_message(type(message))}


def test_values_are_pythons_own():
    shown = taken(ORDER)

    assert shown["first"] == Item(name="tea")
    assert shown["counts"] == {"a": Item(name="x")}
    assert {name: shown[name] for name in ("id", "raw", "kind", "at", "took", "note", "paid")} == {
        "id": 2**40,
        "raw": b"\xff",
        "kind": "OLD",
        "at": AT,
        "took": timedelta(seconds=2),
        "note": "ok",
        "paid": False,
    }


def test_what_is_not_set_is_none_where_the_message_says_so_and_the_default_elsewhere():
    shown = taken(Order())

    assert [name for name, value in shown.items() if value is None] == ["first", "at", "took", "note", "paid"]
    assert (shown["id"], shown["kind"], shown["items"], shown["counts"]) == (0, "NEW", [], {})


def test_an_enum_without_a_name_is_its_number():
    assert taken(Order(kind=7))["kind"] == "7"


def test_the_plain_value_is_that_of_json_with_numbers_as_numbers():
    assert plain_value(ORDER) == {
        "id": 2**40,
        "price": 1.5,
        "raw": "/w==",
        "kind": "OLD",
        "first": {"name": "tea", "kinds": []},
        "items": [{"name": "cup", "kinds": ["NEW", "OLD"]}],
        "counts": {"a": {"name": "x", "kinds": []}},
        "at": "2026-11-26T06:00:00Z",
        "took": "PT2S",
        "note": "ok",
        "paid": False,
    }


@pytest.mark.parametrize(
    "message", [Tree(name="a", children=[Tree(name="b"), Tree(name="c")]), Free(more={"a": [1, {"b": None}]})]
)
def test_messages_in_themselves_and_free_objects_have_a_plain_value(message):
    assert plain_value(message) == json_format.MessageToDict(message, always_print_fields_with_no_presence=True)


def test_a_message_and_its_class_have_fields():
    assert has_fields(ORDER)
    assert has_fields(Order)
