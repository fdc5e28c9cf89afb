"""`record` and `batch_of`: what a test writes in a line is what a handler and a sink get from a job."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

import pydantic
import pytest
from google.protobuf.struct_pb2 import Struct

import recordpublisher as rp
from recordpublisher.local import ManualClock, in_memory
from recordpublisher.testing import EPOCH_MS, batch_of, record, run_virtual


@dataclass
class Order:
    price: float


def test_a_payload_is_its_own_value():
    made = record("a")
    assert (made.data, made.value, made.arrival_millis, made.event_time) == (b"a", b"a", EPOCH_MS, EPOCH_MS)


def test_a_value_is_also_the_payload_as_json():
    made = record(value=Order(1.5), event_time=datetime(2026, 1, 1, tzinfo=UTC))
    assert (made.data, made.value, made.event_time) == (b'{"price":1.5}', Order(1.5), 1_767_225_600_000)


class Ticket(pydantic.BaseModel):
    seat: str = pydantic.Field(alias="seatNumber")
    on: datetime


@dataclass
class Basket:
    tickets: list[Ticket]


TICKET = Ticket(seatNumber="7A", on=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("value", [TICKET, Basket([TICKET])], ids=["a model", "a model in a dataclass"])
def test_the_payload_of_a_pydantic_model_is_what_the_deserializer_reads(value):
    made = record(value=value)
    assert made.value is value
    assert rp.Json(type(value)).values(batch_of(made.data)) == [value]


@pytest.mark.parametrize("value", [object(), Struct()], ids=["an object", "a Protobuf message"])
def test_a_value_without_json_says_that_the_payload_can_be_given(value):
    with pytest.raises(TypeError, match=r"cannot be made from the value \(.*\): give both, as in record\(b"):
        record(value=value)
    assert record(b"1", value=value).value is value


@pytest.mark.parametrize("value", [{"price": 1}, [{"price": 1}]])
def test_a_json_document_is_the_value_and_its_text_the_payload(value):
    assert record(value) == record(value=value) == next(iter(batch_of(value)))
    assert type(record(value).data) is bytes
    assert record(value, value=Order(1)).value == Order(1)


@pytest.mark.parametrize("data", [5, Order(1.5), bytearray(b"a")])
def test_what_is_no_payload_is_refused_with_what_to_write(data):
    with pytest.raises(TypeError, match=r"not .*: record\(value=.*\) makes a record of a value"):
        record(data)


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(rp.ConfigurationError, match=r"'arrival' .* it has no zone"):
        record(arrival=datetime(2026, 1, 1))


def test_a_batch_is_that_of_its_records():
    batch = batch_of(Order(1), "b", record(b"c", sequence_number=7, event_time=5))
    assert [(each.sequence_number, each.value) for each in batch] == [("1", Order(1)), ("2", b"b"), ("7", b"c")]
    assert batch.read_position == rp.SequenceNumber("7")
    assert batch.watermarks == [EPOCH_MS] * 3


def test_a_batch_without_records_has_no_position():
    assert batch_of().read_position is None


def test_a_job_and_the_helper_give_a_sink_the_same_batch():
    async def read():
        sink = rp.MemorySink()
        clock = ManualClock(EPOCH_MS)
        with in_memory({"orders": 1}, clock=clock) as account:
            account.find("orders").put(b'{"price":2.0}', "key")
            async with rp.DataFetcher(
                "orders", region="eu-west-1", start="TRIM_HORIZON", deserializer=Order, sink=sink
            ) as job:
                await job.run_bounded(stop_at_tip=True)
        return sink.records[0]

    read_one = run_virtual(read())
    made = record('{"price":2.0}', value=Order(2.0), sequence_number=read_one.sequence_number)
    assert made == read_one


def test_an_age_is_tested_by_advancing_a_clock():
    clock, handled = ManualClock(EPOCH_MS), []
    with in_memory({"orders": 1}, clock=clock) as account:
        account.find("orders").put(b"1", "key")
        clock.advance(10_000)
        account.find("orders").put(b"2", "key")

        async def run():
            sink = rp.MapSink(handled.append, max_age=5, clock=clock)
            async with rp.DataFetcher("orders", region="eu-west-1", start="TRIM_HORIZON", sink=sink) as job:
                await job.run_bounded(stop_at_tip=True)

        asyncio.run(run())
    assert [each.data for each in handled] == [b"2"]
