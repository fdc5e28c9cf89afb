"""A handler gets records, or values if the annotation of its parameter says so."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import recordpublisher as rp
from recordpublisher.plugins.sinks.map.handler_argument import argument_of
from recordpublisher.testing import run_virtual

from .map_jobs import keyed, written


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
    assert argument_of(handler) is not None


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
    assert argument_of(handler) is None


def handled_by(handler, **options):
    async def job():
        records = keyed("a", "b", "c").with_columns(values=[Order(0), Order(1), Order(2)])
        sink = rp.MapSink(handler, **options)
        await written(sink, records)
        await sink.flush()
        await sink.close()
        return sink.metrics()

    return run_virtual(job())


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
