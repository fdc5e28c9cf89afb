"""A handler gets records, or values if the annotation of its parameter says so."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest

import recordpublisher as rp
from recordpublisher.plugins.sinks.map.handler_argument import value_type_of
from recordpublisher.testing import run_virtual

from .map_jobs import keyed, written
from fakes.memory_streams import PROPERTIES, install


@dataclass
class Order:
    number: int


async def of_value(order: Order): ...
async def of_values(orders: list[Order]): ...
def of_later(shop: str, order: Order): ...
def of_bytes(data: bytes): ...


class Service:
    def __call__(self, order: Order): ...

    async def handle(self, order: "Order"): ...


@pytest.mark.parametrize(
    "handler",
    [of_value, of_values, of_bytes, Service(), Service().handle, functools.partial(of_later, "shop")],
)
def test_a_parameter_of_another_type_gets_the_value(handler):
    assert value_type_of(handler) is not None


async def of_record(record: rp.Record): ...
async def of_typed_record(record: "rp.Record[Order]"): ...
async def of_records(records: Sequence[rp.Record[Order]]): ...
async def of_anything(record: Any, more: Order | None = None): ...
async def of_unknown(record: "Missing"): ...  # noqa: F821
async def of_list(records: list): ...
async def without(record): ...


@pytest.mark.parametrize(
    "handler",
    [of_record, of_typed_record, of_records, of_anything, of_unknown, of_list, without, lambda record: None, print],
)
def test_other_handlers_get_records(handler):
    assert value_type_of(handler) is None


def handled_by(handler, **options):
    async def job():
        records = keyed("a", "b", "c").with_columns(values=[Order(0), Order(1), Order(2)])
        sink = rp.MapSink(handler, **options)
        await written(sink, records)
        await sink.flush()
        await sink.close()
        return sink.metrics()

    return run_virtual(job())


@pytest.mark.parametrize(("made", "hints"), [(Order, 1), (None, 1), (bytes, 0)])
def test_a_handler_that_takes_a_record_for_its_value_is_told_once(made, hints, caplog):
    async def plain(order):
        order.number  # noqa: B018 - a Record has none

    async def job():
        sink = rp.MapSink(plain, retries=0, on_failure="SKIP")
        await written(sink, keyed("a", "b", "c"), value_type=made)
        await sink.flush()
        await sink.close()

    run_virtual(job())

    told = [each.message for each in caplog.records if "annotate the parameter" in each.message]
    assert len(told) == hints
    assert all("plain gets a Record: annotate" in each for each in told)


def test_values_are_handled_one_by_one():
    seen = []

    async def handle(order: Order):
        seen.append(order)

    handled_by(handle)

    assert seen == [Order(0), Order(1), Order(2)]


def test_a_list_of_values_is_handled_at_once_and_those_returned_have_failed():
    seen = []

    def handle(orders: list[Order]):
        seen.append(orders)
        return orders[1:2]

    metrics = handled_by(handle, batch_size=3, concurrency=1, retries=0, on_failure="SKIP")

    assert seen == [[Order(0), Order(1), Order(2)]]
    assert (metrics["handled"], metrics["skipped"]) == (2, 1)


@dataclass
class Refund:
    number: int


class Document(TypedDict):
    number: int


async def of_either(value: Order | Refund): ...
async def of_document(value: Document): ...
async def of_mapping(value: Mapping[str, int]): ...


FITTING = [
    (of_value, Order),
    (of_value, Order | None),
    (of_either, Refund),
    (of_values, Order),
    (of_document, "json"),
    (of_mapping, "json"),
    (of_bytes, None),
    (of_typed_record, Refund),
    (of_value, lambda record: record.data),
]
OTHERS = [
    (of_value, Refund, "Refund"),
    (of_value, "json", "dict"),
    (of_value, None, "bytes"),
    (of_bytes, "text", "str"),
]


async def opened(monkeypatch, handler, deserializer):
    install(monkeypatch, {"a": []})
    async with rp.DataFetcher(["orders"], PROPERTIES, sink=rp.MapSink(handler), deserializer=deserializer):
        pass


@pytest.mark.parametrize(("handler", "deserializer"), FITTING)
async def test_a_handler_of_what_the_deserializer_makes_is_taken(monkeypatch, handler, deserializer):
    await opened(monkeypatch, handler, deserializer)


@pytest.mark.parametrize(("handler", "deserializer", "made"), OTHERS)
async def test_a_handler_of_another_type_is_refused_before_it_is_called(monkeypatch, handler, deserializer, made):
    with pytest.raises(rp.ConfigurationError, match=f"'handler' has .*; the deserializer makes {made}"):
        await opened(monkeypatch, handler, deserializer)


async def test_the_refusal_names_the_deserializer_also_as_a_file_has_it(monkeypatch):
    words = rf"valid: deserializer=Order \(in a file: flink.deserializer = {Order.__module__}:Order\), or a function"
    with pytest.raises(rp.ConfigurationError, match=words):
        await opened(monkeypatch, of_value, "json")


@pytest.mark.parametrize("taken", [list, list[rp.Record], list[rp.Record[int]]])
def test_a_handler_of_lists_is_refused_where_it_would_get_single_records(taken):
    def handle(records): ...

    handle.__annotations__["records"] = taken
    rp.MapSink(handle, batch_size=2)
    with pytest.raises(rp.ConfigurationError, match=r"flink\.sink\.map\.batch\.size"):
        rp.MapSink(handle)
