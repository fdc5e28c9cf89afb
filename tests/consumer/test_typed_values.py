"""Json: documents decoded into a type; and typed values as plain ones again."""

import typing
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum

import attrs
import msgspec
import pydantic
import pydantic.dataclasses
import pytest

import recordpublisher as rp
from recordpublisher.consumer.deserialization import CallableDeserializer, deserializer_of
from recordpublisher.consumer.typed_values import (
    Json,
    column_type,
    converter_into,
    fields_of,
    has_fields,
    plain_value,
    type_info,
)
from recordpublisher.plugins.host.build_from_properties import build_deserializer
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.runtime.argument_checks import batch_decorator_factory
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.shard_metrics import ShardMetrics

from fakes.batches import batch


@dataclass
class Order:
    item: str
    price: float


class Struct(msgspec.Struct):
    item: str
    price: float


class Dict(typing.TypedDict):
    item: str
    price: float


class Tuple(typing.NamedTuple):
    item: str
    price: float


@attrs.define
class Attrs:
    item: str
    price: float


class Model(pydantic.BaseModel):
    item: str
    price: float


class Basket(msgspec.Struct):
    orders: list[Model]


class Refund(msgspec.Struct, tag=True):
    amount: int


class Sale(msgspec.Struct, tag=True):
    amount: int


class Stranger:
    def __init__(self, record: object) -> None:
        self.record = record


TEA = b'{"item": "tea", "price": 2.5}'


@pytest.mark.parametrize("into", [Order, Struct, Attrs, Model])
def test_a_document_becomes_an_object_of_the_type(into):
    (order,) = Json(into).values(batch(TEA))

    assert type(order) is into
    assert (order.item, order.price) == ("tea", 2.5)


def test_a_typed_dict_stays_a_dict_and_a_named_tuple_is_an_array():
    assert Json(Dict).values(batch(TEA)) == [{"item": "tea", "price": 2.5}]
    assert Json(Tuple).values(batch(b'["tea", 2.5]')) == [Tuple("tea", 2.5)]


def test_lists_unions_and_models_inside_other_types():
    assert Json(list[Order]).values(batch(b"[" + TEA + b"]")) == [[Order("tea", 2.5)]]
    assert Json(Refund | Sale).values(batch(b'{"type": "Refund", "amount": 3}')) == [Refund(3)]
    assert Json(Basket).values(batch(b'{"orders": [' + TEA + b"]}")) == [Basket([Model(item="tea", price=2.5)])]


class Paid(pydantic.BaseModel):
    kind: typing.Literal["paid"]
    amount: int


class Refunded(pydantic.BaseModel):
    kind: typing.Literal["refunded"]
    reason: str


PAID, REFUNDED = b'{"kind": "paid", "amount": 3}', b'{"kind": "refunded", "reason": "late"}'
BOTH = [Paid(kind="paid", amount=3), Refunded(kind="refunded", reason="late")]
TAGGED = typing.Annotated[Paid | Refunded, pydantic.Field(discriminator="kind")]


class RootOfBoth(pydantic.RootModel[Paid | Refunded]):
    pass


def test_a_root_model_is_a_value_without_fields():
    (value,) = Json(RootOfBoth).values(batch(PAID))
    assert value.root == BOTH[0]
    assert not has_fields(value)
    assert fields_of(type_info(RootOfBoth)) is None
    assert plain_value(value) == {"kind": "paid", "amount": 3}


@dataclass
class HasUnion:
    payment: Model | Refunded


class Mixed(pydantic.BaseModel):
    at: str | datetime
    of_dataclass: HasUnion
    price: typing.Annotated[Decimal, msgspec.Meta(extra={"column": "DECIMAL(12, 2)"})]


def test_a_field_of_a_model_that_only_pydantic_can_decode_is_of_any_type():
    Json(Mixed)
    fields = {each.name: each.type for each in fields_of(type_info(Mixed))}
    assert fields["at"] == fields["of_dataclass"] == msgspec.inspect.AnyType()


def test_a_field_of_a_model_may_name_its_column():
    (price,) = (each for each in fields_of(type_info(Mixed)) if each.name == "price")
    assert column_type(price.type) == "DECIMAL(12, 2)"


def test_a_limit_that_pydantic_would_not_check_is_refused():
    limited = typing.Annotated[int, msgspec.Meta(gt=0)]
    with pytest.raises(ConfigurationError, match=r"use pydantic\.Field"):
        Json(list[limited | Refunded])
    described = typing.Annotated[Model | Refunded, msgspec.Meta(description="a payment")]
    assert Json(described).values(batch(REFUNDED)) == BOTH[1:]


@pytest.mark.parametrize("into", [Paid | Refunded, TAGGED, Paid | Refunded | None])
def test_a_union_of_pydantic_models_is_decoded_by_pydantic(into):
    assert Json(into).values(batch(PAID, REFUNDED)) == BOTH
    assert Json(list[into]).values(batch(b"[" + PAID + b"," + REFUNDED + b"]")) == [BOTH]
    with pytest.raises(ValueError, match=r"it is not a valid Paid \| Refunded"):
        Json(into).values(batch(b'{"kind": "lost"}'))
    assert fields_of(type_info(into)) is None


@pytest.mark.parametrize(
    ("into", "data", "message"),
    [
        (Order, b'{"item": "tea", "price": "2"}', "it is not a valid Order: $.price: expected float, got str"),
        (Order, b'{"item": "tea"}', "it is not a valid Order: $: object missing required field price"),
        (list[Order], b'[{"item": 1, "price": 2}]', "$[0].item: expected str, got int"),
        (Model, b'{"item": "tea", "price": "x"}', "it is not a valid Model: $.price: Input should be a valid number"),
        (Model, b"{}", "it is not a valid Model: $.item: Field required (and 1 more)"),
        (Basket, b'{"orders": [{"item": "tea", "price": "x"}]}', "price"),
        (Order, b"{", "Input data was truncated"),
    ],
)
def test_a_document_that_does_not_fit_is_told_by_its_field(into, data, message):
    with pytest.raises(ValueError, match=r".") as raised:
        Json(into).values(batch(data))

    assert message in str(raised.value)


def test_without_strict_a_text_may_be_a_number():
    assert Json(Order, strict=False).values(batch(b'{"item": "tea", "price": "2"}')) == [Order("tea", 2.0)]


@pytest.mark.parametrize("into", [Stranger, list[Stranger], Struct | Basket, dict[str, Stranger]])
def test_a_type_that_json_cannot_be_decoded_into_is_refused_by_name(into):
    with pytest.raises(ConfigurationError, match=r"deserializer.*(Stranger|Struct)"):
        Json(into)


@pydantic.dataclasses.dataclass
class Checked:
    price: typing.Annotated[int, pydantic.Field(gt=0)]


@dataclass
class HasChecked:
    line: Checked


def test_a_dataclass_of_pydantic_is_validated_or_refused():
    """Inside another type msgspec makes it, without pydantic's validators."""
    for make in (lambda: Json(Checked).values(batch(b'{"price": -1}')), lambda: converter_into(Checked)({"price": -1})):
        with pytest.raises(ValueError, match=r"it is not a valid Checked: \$\.price: Input should be greater than 0$"):
            make()
    for into in (list[Checked], HasChecked, Checked | None):
        for build in (Json, converter_into):
            with pytest.raises(ConfigurationError, match=r"Checked is a dataclass of pydantic, .* make it a BaseModel"):
                build(into)


def test_a_class_of_a_record_is_refused_with_what_to_give_instead():
    with pytest.raises(ConfigurationError, match="give a function of a Record"):
        deserializer_of(Stranger)


def test_the_argument_is_a_type_an_object_with_values_or_a_function():
    assert isinstance(deserializer_of(Order), Json)
    assert isinstance(deserializer_of(Refund | Sale), Json)
    given = Json(Order)
    assert deserializer_of(given) is given
    assert isinstance(deserializer_of(lambda record: record.data), CallableDeserializer)


@pytest.mark.parametrize("given", [7, {}, None, "json"])
def test_anything_else_is_refused(given):
    with pytest.raises(ConfigurationError, match="a type that JSON is decoded into"):
        deserializer_of(given)


def test_plain_values_are_converted_into_the_type():
    assert converter_into(Order)({"item": "tea", "price": 2.5}) == Order("tea", 2.5)
    assert converter_into(Model)({"item": "tea", "price": 2.5}) == Model(item="tea", price=2.5)
    with pytest.raises(ValueError, match=r"it is not a valid Order: \$\.price: expected float, got str"):
        converter_into(Order)({"item": "tea", "price": "x"})


@pytest.mark.parametrize(
    "value", [Order("tea", 2.5), Struct("tea", 2.5), Attrs("tea", 2.5), Model(item="tea", price=2.5)]
)
def test_a_typed_value_becomes_a_dict_again(value):
    assert has_fields(value)
    assert plain_value(value) == {"item": "tea", "price": 2.5}


def test_models_and_times_inside_a_value_have_their_form_in_json():
    assert plain_value(Basket([Model(item="tea", price=2.5)])) == {"orders": [{"item": "tea", "price": 2.5}]}
    assert plain_value({"at": datetime(2026, 1, 1, tzinfo=UTC)}) == {"at": "2026-01-01T00:00:00Z"}
    with pytest.raises(TypeError, match="a value of the type Stranger cannot be written as JSON"):
        plain_value(Stranger(1))
    assert not has_fields({"item": "tea"})


def built(name):
    return build_deserializer(load_registry(), rp.Properties({"flink.deserializer": name}))


def test_a_property_names_a_type_or_a_function_of_a_module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "user_types.py").write_text("Count = list[int]\n\n\ndef size(record):\n    return len(record.data)\n")

    assert built("user_types:Count").values(batch(b"[1, 2]")) == [[1, 2]]
    assert built("user_types:size").values(batch(b"[1, 2]")) == [6]


@pytest.mark.parametrize("name", ["user_types:Missing", "no_such_module:Count", "threading:Thread", "math:pi", ":"])
def test_a_property_that_names_none_says_what_is_valid(name):
    with pytest.raises(
        ConfigurationError, match=r"flink\.deserializer.*module:name, of a type that JSON is decoded into"
    ):
        built(name)


def test_each_stream_may_have_a_deserializer_of_its_own():
    by_stream = deserializer_of({"orders": int, "clicks": lambda record: record.data})

    def values(stream):
        return by_stream.values(rp.RecordBatch(rp.Shard(stream, "a"), [rp.UserRecord(b"5", "1")]))

    assert (values("orders"), values("clicks")) == ([5], [b"5"])
    with pytest.raises(ValueError, match="no deserializer for the stream views"):
        values("views")


class Paid(Enum):
    NO = "no"


@dataclass
class Place:
    country: str = "de"


class Sparse(msgspec.Struct, omit_defaults=True, rename="camel", tag="sparse"):
    zip_code: int = 7


@dataclass
class Delivery:
    order: int
    state: Paid = Paid.NO
    to: Place = field(default_factory=Place)
    stops: list[Sparse] = field(default_factory=list)


def test_defaults_of_a_type_are_fields_of_its_values():
    (made,) = Json(Delivery).values(batch(b'{"order": 1, "stops": [{"type": "sparse"}]}'))
    stops = [{"type": "sparse", "zipCode": 7}]
    assert plain_value(made) == {"order": 1, "state": "no", "to": {"country": "de"}, "stops": stops}
    assert plain_value(converter_into(dict[str, Place])({"home": {}})) == {"home": {"country": "de"}}


def test_what_only_the_class_or_the_constructor_has_is_no_field():
    @dataclass
    class Order:
        kind: typing.ClassVar[str] = "order"
        n: int
        scale: InitVar[int] = 3

    assert plain_value(Order(1)) == {"n": 1}


def test_a_field_that_is_not_set_and_one_of_a_tuple_stay_as_they_are():
    class Partial(msgspec.Struct):
        note: str | msgspec.UnsetType = msgspec.UNSET
        pair: Tuple = Tuple("tea", 2.5)

    assert plain_value(Partial()) == {"pair": ["tea", 2.5]}


class Known(pydantic.BaseModel):
    line: "Line"


class Line(pydantic.BaseModel):
    count: int


class Hidden(pydantic.BaseModel):
    at: "OnlyForTypeCheckers"  # noqa: F821


@pydantic.dataclasses.dataclass
class HiddenToo:
    at: "OnlyForTypeCheckers"  # noqa: F821


def test_a_model_whose_types_are_known_by_now_is_taken():
    assert Json(Known).values(batch(b'{"line": {"count": 1}}')) == [Known(line=Line(count=1))]


@pytest.mark.parametrize("into", [Hidden, list[Hidden], HiddenToo])
def test_a_model_with_a_type_that_is_not_known_is_refused(into):
    with pytest.raises(ConfigurationError, match=r"name 'OnlyForTypeCheckers' is not defined\. Valid"):
        Json(into)


Number = typing.NewType("Number", int)


@pytest.mark.parametrize(("into", "data", "value"), [(Number, b"5", 5), (list[Number], b"[5]", [5])])
def test_a_new_type_is_decoded_as_the_type_below_it(into, data, value):
    assert deserializer_of(into).values(batch(data)) == [value]


def test_a_job_with_a_stream_without_a_deserializer_is_refused_when_it_is_made():
    with pytest.raises(ConfigurationError, match="'deserializer' has no entry for the stream orders"):
        rp.DataFetcher("orders", region="us-east-1", sink=rp.MemorySink(), deserializer={"other": int})


class Positive(msgspec.Struct):
    number: int

    def __post_init__(self):
        if self.number < 0:
            raise ValueError("below zero")


@pytest.mark.parametrize(
    ("into", "payload", "has_traceback"),
    [
        (Model, b"no json", False),
        (Model, b"{}", False),
        (Positive, b"no json", False),
        (Positive, b"{}", False),
        (Positive, b'{"number": -1}', True),
    ],
)
def test_a_bad_record_is_one_line_of_the_log_unless_user_code_has_refused_it(caplog, into, payload, has_traceback):
    properties = rp.Properties(deserializer_error="SKIP")
    decorator = batch_decorator_factory(load_registry(), properties, into)(batch(payload).shard, ShardMetrics())

    assert len(decorator.decorate(batch(payload))) == 0

    (line,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert (line.exc_info is not None) == has_traceback


def test_a_deserializer_that_is_not_one_is_named_with_its_stream():
    with pytest.raises(ConfigurationError, match=r"'deserializer\['a'\]'"):
        deserializer_of({"a": 1})


def test_the_class_of_a_deserializer_is_not_taken_for_the_type_of_the_values():
    class Frames:
        def values(self, batch):
            return []

    with pytest.raises(ConfigurationError, match=r"Frames is the class of a deserializer: give an object of it"):
        deserializer_of(Frames)
