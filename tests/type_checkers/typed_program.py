"""What type checkers infer of typed records: checked by mypy in `make check`, by pyright in `test_pyright.py`; it is never run."""

from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
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


async def handle_values(orders: list[Order]) -> None: ...


async def handle_sequence(orders: Sequence[Order]) -> None: ...


async def handle_records(records: list[rp.Record[Order]]) -> list[rp.Record[Order]]:
    return records


async def handle_either(value: Order | Refund) -> None: ...


def handle_in_a_thread(order: Order) -> str:
    return str(order.price)


async def handle_document(value: dict[str, Any]) -> None: ...


def handle_anything(value: Any) -> None: ...


class Handling:
    async def __call__(self, record: rp.Record[Order]) -> None: ...

    async def on_order(self, order: Order) -> None: ...


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


def handlers(size: int) -> None:
    assert_type(rp.MapSink(handle_value), rp.MapSink[Order])
    assert_type(rp.MapSink(handle_values, batch_size=10), rp.MapSink[Order])
    assert_type(rp.MapSink(handle_records, batch_size=10, clock=None), rp.MapSink[Order])
    assert_type(rp.MapSink({"orders": handle_value, "refunds": handle_refund}), rp.MapSink[Any])
    rp.DataFetcher("orders", deserializer=Order, sink=rp.MapSink(handle_values, batch_size=size, concurrency=1))
    rp.DataFetcher("orders", deserializer=Order, sink=rp.MapSink(handle_sequence, batch_size=10))
    rp.DataFetcher("orders", deserializer=Order, sink=rp.MapSink(handle_records, batch_size=10, ordering="NONE"))
    rp.DataFetcher("orders", deserializer=list[Order], sink=rp.MapSink(handle_values))
    rp.DataFetcher("orders", deserializer=Order, sink=rp.MapSink(handle_either))
    rp.DataFetcher("orders", deserializer=Order, sink=rp.MapSink(handle_in_a_thread, retries=5))
    rp.DataFetcher("orders", deserializer=Order, sink=rp.MapSink(handle_anything))
    rp.DataFetcher("orders", deserializer=Order, sink=rp.MapSink(Handling()))
    rp.DataFetcher("orders", deserializer=Order, sink=rp.MapSink(Handling().on_order))
    rp.DataFetcher("orders", deserializer=rp.Json(Order), sink=rp.MapSink(partial(handle_value)))
    rp.DataFetcher("orders", deserializer=order_of, sink=rp.MapSink(handle_value))
    rp.DataFetcher("orders", deserializer="json", sink=rp.MapSink(handle_document))
    rp.DataFetcher("orders", sink=rp.MapSink(lambda record: print(record.data)))
    rp.DataFetcher("orders", sink=rp.MapSink(lambda records: print(len(records)), batch_size=10))
    by_stream = {"orders": Order, "refunds": Refund}
    rp.DataFetcher(["orders", "refunds"], deserializer=by_stream, sink=rp.MapSink(handle_either))


def lambda_handlers() -> None:
    rp.lambda_handler(handle)
    rp.lambda_handler(handle, deserializer=Order, retries=3)
    rp.lambda_handler(handle_any, deserializer=Order)
    rp.lambda_handler(handle_value, deserializer=Order)
    rp.lambda_handler(handle_values, deserializer=Order, batch_size=10)
    rp.lambda_handler(handle_records, deserializer=Order, batch_size=10)
    rp.lambda_handler(handle_either, deserializer=Order)
    rp.lambda_handler(handle_document, deserializer="json")
    rp.lambda_handler(handle_anything, {"flink.deserializer": "json"}, ordering="NONE")


class OrderQueue(rp.QueueSource):
    def __init__(self, properties: rp.Properties) -> None:
        self.visibility_seconds = 60.0
        self.most_receivers = 2
        self.full_receive = int(properties.get("orders.receive", "100"))
        self.full_bytes = 1e6

    async def receive(self, metrics: rp.ShardMetrics) -> list[rp.UserRecord]:
        return []

    async def acknowledge(self, records: Sequence[rp.UserRecord]) -> list[str]:
        return []

    async def prolong(self, records: Sequence[rp.UserRecord]) -> list[str]:
        return []

    async def release(self, records: Sequence[rp.UserRecord]) -> list[str]:
        return []


class OrderDecoder:
    def __init__(self, properties: rp.Properties) -> None: ...

    def values(self, batch: rp.RecordBatch) -> list[Order]:
        return []


def register_sources(registry: rp.Registrar[rp.QueueSource]) -> None:
    registry.add("order-queue", OrderQueue)


def register_sinks(registry: rp.Registrar[rp.Sink]) -> None:
    registry.add("orders", OrderSink)
    registry.add("all", rp.MemorySink)
    registry.add("later", "orders:Sink")
    registry.add("made", lambda properties: OrderSink())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    registry.add("other", OrderQueue)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def register_deserializers(registry: rp.Registrar[rp.Deserializer]) -> None:
    registry.add("orders", OrderDecoder)


def refused() -> None:
    refunds = rp.MapSink(handle_refund)
    rp.DataFetcher("orders", deserializer=Order, sink=refunds)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rp.DataFetcher("orders", deserializer=Refund, sink=OrderSink())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
