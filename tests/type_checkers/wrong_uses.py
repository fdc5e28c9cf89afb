"""Wrong uses of the public names, each refused by type checkers: `test_wrong_uses.py` runs mypy over this file; it is never run."""

from datetime import datetime

import recordpublisher as rp


class Order:
    price: float


async def handle(record: rp.Record) -> None: ...


async def count(number: int, other: int) -> None: ...


async def handle_number(number: int) -> None: ...


async def handle_numbers(numbers: list[int]) -> None: ...


async def handle_records(records: list[rp.Record[int]]) -> None: ...


class Rows(rp.Sink[Order]):
    async def write(self, batch: rp.RecordBatch[Order]) -> None: ...


rp.MapSink(handle, ordering="PERKEY")
rp.MapSink(handle, ordering="per_key")
rp.MapSink(handle, on_failure="IGNORE")
rp.MapSink(handle, retry=3)
rp.MapSink(handle, retries="three")
rp.MapSink(handle, concurrency="64")
rp.MapSink(count)
rp.MapSink(handle, clock=datetime)
rp.MapSink("handle")
rp.lambda_handler(handle, retires=3)
rp.lambda_handler(handle, ordering="PERKEY")
rp.lambda_handler(handle, on_failure="dead")
rp.lambda_handler(handle, batch_size="10")
rp.consume("orders", regoin="eu-west-1")
rp.consume("orders", region=5)
rp.consume("orders", max_records="10")
rp.consume("orders", start=["1h"])
rp.consume("orders", job_workers="elastic")
rp.consume(5)
rp.stream("orders", stop_at_tip="yes")
rp.stream("orders", deserializer=5)
rp.stream("orders", state_dataloss="IGNORE")
rp.read_arrow("orders", columns=5)
rp.read_polars("orders", begin="1h")
rp.read_pandas("orders", metadata="no")
rp.read_pandas("orders", event_times="1h")
rp.DataFetcher("orders", sink=handle)
rp.DataFetcher("orders", sink=Rows)
rp.DataFetcher("orders", sink=rp.MemorySink(), paralelism=2)
rp.DataFetcher("orders", sink=rp.MemorySink(), publisher=5)
rp.DataFetcher("orders", deserializer=Order, sink=rp.MapSink(handle_number))
rp.DataFetcher("orders", deserializer=Order, sink=rp.MapSink(handle_numbers, batch_size=10))
rp.DataFetcher("orders", deserializer=Order, sink=rp.MapSink(handle_records, batch_size=10))
rp.DataFetcher("orders", deserializer=rp.Json(Order), sink=rp.MapSink(handle_number))
rp.lambda_handler(handle_number, deserializer=Order)
rp.lambda_handler(handle_numbers, deserializer=Order, batch_size=10)
rp.lambda_handler(handle_records, deserializer=Order, batch_size=10)
rp.lambda_handler("handle")
rp.KinesisSink("orders", ordering="PER_SHARD")
rp.KinesisSink("orders", regoin="eu-west-1")
rp.KinesisSink(["orders"])
rp.Producer("orders", ordering="PER_SHARD")
rp.Producer("orders", max_outage=["20s"])
rp.Producer(["orders"])
rp.Properties(region=5)
rp.Properties({"aws.region": "eu-west-1"}, http_client="BOTO")
rp.local.serve_in_thread(stream={"orders": 1})
rp.testing.record(valeu=1)
