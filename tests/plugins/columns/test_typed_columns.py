"""The columns of typed values, and `rp.to_arrow`, which adds the metadata."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from zoneinfo import ZoneInfo

import attrs
import msgspec
import protobuf_order
import pyarrow as pa
import pydantic
import pytest

import recordpublisher as rp
from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA
from recordpublisher.plugins.columns.typed_columns import TypedColumns

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
    with pytest.raises(rp.ConfigurationError, match="the values are of several types: Order, Refund"):
        rp.to_arrow(typed(Order(1), Refund(2)))


def test_the_record_whose_value_has_no_place_is_named():
    with pytest.raises(
        rp.DeserializationError, match=r"record 2 of orders/shardId-0 .*field 'amount' of Refund"
    ) as raised:
        rp.to_arrow(typed(Refund(1), Refund(2**70), Refund(3)))
    assert raised.value.sequence_number == "2"


class Colour(enum.Enum):
    RED = "red"


class Item(msgspec.Struct, omit_defaults=True, rename="camel"):
    name: str
    how_many: int = 1


class OrderTypedColumns(msgspec.Struct):
    price: float
    paid: bool
    at: datetime
    day: date
    clock: time
    took: timedelta
    total: Decimal
    number: uuid.UUID
    colour: Colour
    kind: Literal["new", "old"]
    raw: bytes
    items: list[Item]
    tags: set[str]
    counts: dict[str, int]
    first: Item | None = None
    size: int | float | None = None
    limited: Annotated[int, msgspec.Meta(gt=0)] = 1


AT = datetime(2026, 11, 26, 6, tzinfo=UTC)
ORDER = OrderTypedColumns(
    1.5, True, AT, AT.date(), time(6, 30), timedelta(seconds=2), Decimal("1.10"), uuid.UUID(int=7), Colour.RED, "new", b"\xff",
    [Item("tea"), Item("cup", 2)], {"x"}, {"a": 1}, Item("tea"), 3,
)  # fmt: skip
ROW = {
    "price": 1.5,
    "paid": True,
    "at": AT,
    "day": AT.date(),
    "clock": time(6, 30),
    "took": timedelta(seconds=2),
    "total": Decimal("1.10"),
    "number": str(uuid.UUID(int=7)),
    "colour": "red",
    "kind": "new",
    "raw": b"\xff",
    "items": [{"name": "tea", "howMany": 1}, {"name": "cup", "howMany": 2}],
    "tags": ["x"],
    "counts": [("a", 1)],
    "first": {"name": "tea", "howMany": 1},
    "size": 3.0,
    "limited": 1,
}


def rows(of: Any, *values: Any) -> list[dict[str, Any]]:
    columns = TypedColumns(of)
    batch = pa.RecordBatch.from_arrays(columns.arrays(values), schema=pa.schema(columns.fields))
    batch.validate(full=True)
    return batch.to_pylist()


def test_each_field_is_a_column_and_objects_are_structs():
    assert rows(OrderTypedColumns, ORDER) == [ROW]


def test_the_columns_are_those_of_the_type_also_without_values():
    fields = {field.name: field.type for field in TypedColumns(OrderTypedColumns).fields}

    assert fields["items"] == pa.list_(pa.struct([("name", pa.string()), ("howMany", pa.int64())]))
    assert fields["at"] == pa.timestamp("us", tz="UTC")
    assert rows(OrderTypedColumns) == []


@dataclass
class Counts:
    all: int | None = None
    each: list[int] | None = None
    by: dict[str, int] | None = None
    small: Annotated[int | None, msgspec.Meta(extra={"column": "INT"})] = None
    inside: Refund | None = None


@pytest.mark.parametrize(
    "value",
    [
        Counts(1.5),
        Counts(Decimal("1.5")),
        Counts(each=[1, 1.5]),
        Counts(by={"a": 1.5}),
        Counts(small=1.5),
        Counts(inside=Refund(1.5)),
        Counts(float("nan")),
    ],
)
def test_a_fraction_in_a_field_of_whole_numbers_is_refused(value):
    """A class that checks no types may have one, and Arrow would cut it off."""
    with pytest.raises(ValueError, match=r"has a fraction|NaN"):
        rows(Counts, Counts(), value)


def test_whole_numbers_of_any_class_are_taken():
    given = [Counts(2.0), Counts(Decimal(3)), Counts(2**63 - 1), Counts(each=[4.0, None]), Counts()]

    assert [row["all"] for row in rows(Counts, *given)] == [2, 3, 2**63 - 1, None, None]


@dataclass
class ADataclass:
    a: int
    b: str | None = None


@attrs.define
class Attrs:
    a: int
    b: str | None = None


class Pydantic(pydantic.BaseModel):
    a: pydantic.PositiveInt
    b: str | None = None


class Typed(TypedDict, total=False):
    a: int
    b: str


class Named(NamedTuple):
    a: int
    b: str | None = None


class Array(msgspec.Struct, array_like=True):
    a: int
    b: str | None = None


@pytest.mark.parametrize("of", [ADataclass, Attrs, Pydantic, Typed, Named, Array])
def test_every_kind_of_class_has_its_fields_as_columns(of):
    assert rows(of, of(a=1), of(a=2, b="x")) == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_classes_in_a_class_are_structs_whatever_their_kind():
    @dataclass
    class Outer:
        inner: Named
        more: list[Pydantic] = field(default_factory=list)

    shown = rows(Outer, Outer(Named(1, "x"), [Pydantic(a=2)]))
    assert shown == [{"inner": {"a": 1, "b": "x"}, "more": [{"a": 2, "b": None}]}]


def test_the_fields_of_a_protobuf_message_are_columns():
    cup = protobuf_order.Item(name="cup", kinds=[0, 1])
    order = protobuf_order.Order(
        id=7, kind=1, first=cup, items=[cup], counts={"a": cup}, at=AT, took=timedelta(seconds=2)
    )
    as_row = {"name": "cup", "kinds": ["NEW", "OLD"]}

    assert rows(protobuf_order.Order, order) == [
        {
            "id": 7,
            "price": 0.0,
            "raw": b"",
            "kind": "OLD",
            "first": as_row,
            "items": [as_row],
            "counts": [("a", as_row)],
            "at": AT,
            "took": timedelta(seconds=2),
            "note": None,
            "paid": None,
        }
    ]


def test_an_unsigned_number_that_is_too_large_is_named():
    columns = TypedColumns(protobuf_order.Order)

    with pytest.raises(ValueError, match=r"field 'id' of Order does not fit the Arrow type int64"):
        columns.arrays([protobuf_order.Order(id=2**63)])


def test_values_without_fields_are_one_column():
    assert rows(list[int], [1, 2], []) == [{"value": [1, 2]}, {"value": []}]
    assert rows(int | None, 1, None) == [{"value": 1}, {"value": None}]


class RefundTypedColumns(msgspec.Struct, tag=True):
    amount: int


class Sale(msgspec.Struct, tag=True):
    price: float


class Recursive(msgspec.Struct):
    children: list[Recursive]


class Outer(msgspec.Struct):
    more: list[dict[str, Any]]


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (Outer, "$.more[][] is Any"),
        (Recursive, "$.children[] is Recursive"),
        (protobuf_order.Tree, "$.children[] is Tree"),
        (protobuf_order.Free, "$.more[] is Any"),
        (Sale | RefundTypedColumns, "$.value is Union"),
        (tuple[int, str], "$.value is Tuple"),
        (Literal[1, "a"], "$.value is Literal"),
    ],
)
def test_a_type_without_a_column_is_named_with_its_field(of, reason):
    with pytest.raises(rp.ConfigurationError) as raised:
        TypedColumns(of)
    assert f"{reason}, for which Arrow has no column" in str(raised.value)


def test_a_value_that_does_not_fit_is_named_with_its_field():
    columns = TypedColumns(ADataclass)

    with pytest.raises(ValueError, match=r"field 'a' of ADataclass does not fit the Arrow type int64: .*too large"):
        columns.arrays([ADataclass(1), ADataclass(2**70)])


@dataclass
class Priced:
    price: Decimal
    prices: list[Decimal] = field(default_factory=list)


@pytest.mark.parametrize(
    "text",
    [
        "1e-4000000",
        "1e4000000",
        "1e1000",
        "1e20",
        "1e-19",
        "1.0000000000000000001",
        "NaN",
        "Infinity",
        "-Infinity",
        "sNaN",
    ],
)
@pytest.mark.parametrize("make", [Priced, lambda price: Priced(Decimal(0), [price])])
def test_a_decimal_that_does_not_fit_is_refused_before_arrow_sees_it(text, make):
    with pytest.raises(ValueError, match=r"field 'prices?' of Priced"):
        TypedColumns(Priced).arrays([make(Decimal(text))])


@pytest.mark.parametrize(
    "text",
    ["1e-18", "99999999999999999999.999999999999999999", "1e19", "0e100", "0e-4000000", "1.50000000000000000000000"],
)
def test_a_decimal_that_fits_is_exact(text):
    (row,) = rows(Priced, Priced(Decimal(text)))
    assert row["price"] == Decimal(text)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (time(23, 30, tzinfo=timezone(timedelta(hours=2))), time(21, 30)),
        (time(0, 30, tzinfo=timezone(timedelta(hours=2))), time(22, 30)),
        (time(6, 30, tzinfo=UTC), time(6, 30)),
        (time(6, 30), time(6, 30)),
    ],
)
def test_a_time_of_day_is_in_utc(given, stored):
    @dataclass
    class Opening:
        at: time

    assert rows(Opening, Opening(given)) == [{"at": stored}]


def test_a_time_of_day_whose_offset_depends_on_the_date_is_refused():
    @dataclass
    class Opening:
        at: time

    with pytest.raises(ValueError, match="depends on the date"):
        TypedColumns(Opening).arrays([Opening(time(6, 30, tzinfo=ZoneInfo("Europe/Zurich")))])


def named(of, column):
    return msgspec.defstruct("Named", [("a", Annotated[of, msgspec.Meta(extra={"column": column})])])


@pytest.mark.parametrize(
    ("of", "column", "kind"),
    [
        (Decimal, "decimal(12,2)", pa.decimal128(12, 2)),
        (Decimal | None, "DECIMAL(5)", pa.decimal128(5, 0)),
        (int, "INT", pa.int32()),
        (float, "FLOAT", pa.float32()),
    ],
)
def test_a_field_may_name_its_column(of, column, kind):
    assert TypedColumns(named(of, column)).fields[0].type == kind


@pytest.mark.parametrize(
    ("of", "column"),
    [(Decimal, "DECIMAL(39, 2)"), (Decimal, "INT"), (int, "DECIMAL(5, 2)"), (int, "FLOAT"), (int, "X")],
)
def test_a_column_that_its_values_do_not_have_is_refused_by_the_field(of, column):
    with pytest.raises(rp.ConfigurationError, match=r"\$.a"):
        TypedColumns(named(of, column))
