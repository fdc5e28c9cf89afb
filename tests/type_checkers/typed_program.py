"""What type checkers infer of typed records: checked by mypy in `make check`, by pyright in `test_pyright.py`; it is never run."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import msgspec
import polars

import recordpublisher as rp


class Order(msgspec.Struct):
    price: float


class Refund(msgspec.Struct):
    amount: int


class OrderSink(rp.Sink[Order]):
    async def write(self, batch: rp.RecordBatch[Order]) -> None:
        for record in batch:
            assert_type(record.value.price, float)


class AnySink(rp.Sink):
    async def write(self, batch: rp.RecordBatch) -> None:
        for record in batch:
            assert_type(record.value, Any)


def order_of(record: rp.Record) -> Order:
    return Order(len(record.data))


async def handle(record: rp.Record[Order]) -> None:
    assert_type(record.value, Order)


async def handle_refund(record: rp.Record[Refund]) -> None: ...


async def handle_any(record: rp.Record) -> None: ...


async def handle_value(order: Order) -> None: ...


def iterations() -> None:
    assert_type(rp.consume("orders", deserializer=Order), rp.Records[Order])
    assert_type(rp.consume("orders", deserializer=list[Order]), rp.Records[list[Order]])
    assert_type(rp.consume("orders", deserializer=rp.Json(Order, strict=False)), rp.Records[Order])
    assert_type(rp.consume("orders", deserializer=rp.Avro("{}", Order)), rp.Records[Order])
    assert_type(rp.consume("orders", deserializer=order_of), rp.Records[Order])
    assert_type(rp.consume("orders", deserializer="json"), rp.Records[Any])
    assert_type(rp.consume("orders", region="eu-west-1"), rp.Records[Any])
    assert_type(rp.stream("orders", deserializer=Order), AsyncGenerator[rp.RecordBatch[Order], None])


def frames(batch: rp.RecordBatch[Order], last: dict[str, Any]) -> None:
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    assert_type(rp.read_polars("orders", start=hour_ago, deserializer=Order, region="eu-west-1"), polars.DataFrame)
    rp.read_polars("orders", {"aws.region": "eu-west-1"}, start="TRIM_HORIZON", end="NOW")
    with rp.read_arrow("orders", start=last, end=last) as reader:
        reader.read_all()
    rp.to_arrow(batch, batch, into=Order).to_pylist()
    rp.read_arrow("orders", state_url="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def jobs() -> None:
    assert_type(rp.DataFetcher("orders", deserializer=Order), rp.DataFetcher[Order])
    assert_type(rp.DataFetcher("orders", sink=AnySink()), rp.DataFetcher[Any])
    assert_type(rp.MapSink(handle), rp.MapSink[Order])
    rp.DataFetcher("orders", deserializer=Order, sink=OrderSink())
    rp.DataFetcher("orders", deserializer=Order, sink=AnySink())
    rp.DataFetcher("orders", deserializer=Order, sink=rp.MapSink(handle))
    rp.DataFetcher("orders", deserializer=Order, sink=rp.MapSink(handle_any))
    rp.DataFetcher("orders", deserializer=Order, sink=rp.MapSink(handle_value))
    rp.DataFetcher("orders", deserializer=Order, sink=rp.MapSink(lambda record: print(record.value), concurrency=2))


def refused() -> None:
    refunds = rp.MapSink(handle_refund)
    rp.DataFetcher("orders", deserializer=Order, sink=refunds)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rp.DataFetcher("orders", deserializer=Refund, sink=OrderSink())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
