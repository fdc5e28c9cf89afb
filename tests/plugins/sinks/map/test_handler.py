"""What `MapSink` gives to a handler, and what happens if the handler misbehaves."""

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import traceback
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import pydantic
import pytest

import recordpublisher as rp
from recordpublisher.fetcher.sink import SinkContext, Unfinished
from recordpublisher.plugins.sinks.map.handler import value_type_of
from recordpublisher.testing import VirtualClock, run_virtual

from .map_jobs import WaitingHandler, batch_of_keys, open_and_write, settle
from fakes.memory_streams import PROPERTIES, install

# --- What a handler takes, by the annotation of its parameter ---


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
async def of_text(record: "the next record"): ...  # noqa: F722
async def of_list(records: list): ...
async def without(record): ...


@pytest.mark.parametrize(
    "handler",
    [of_record, of_typed_record, of_records, of_anything, of_text, of_list, without, lambda record: None, print],
)
def test_other_handlers_get_records(handler):
    assert value_type_of(handler) is None


async def with_unknown_others(order: Order, more: "Missing" = 1) -> "Result": ...  # noqa: F821
async def of_unknown(record: "Missing"): ...  # noqa: F821
async def of_identity(order: typing.NewType("Identity", Order)): ...


def test_only_the_annotation_of_the_record_must_be_known_at_run_time():
    assert value_type_of(with_unknown_others) is Order
    words = r"'record: Missing'.*name 'Missing' is not defined: .*TYPE_CHECKING"
    with pytest.raises(rp.ConfigurationError, match=words):
        rp.MapSink(of_unknown)


def test_a_handler_of_a_new_type_gets_values_of_the_type_below_it():
    assert value_type_of(of_identity) is Order


@pytest.mark.parametrize("handler", [of_value, of_record, of_bytes])
def test_a_handler_of_one_is_refused_where_it_would_get_lists(handler):
    with pytest.raises(rp.ConfigurationError, match="'batch_size' is 2: the handler takes one"):
        rp.MapSink(handler, batch_size=2)


def handled_by(handler, **options):
    async def job():
        records = batch_of_keys("a", "b", "c").with_columns(values=[Order(0), Order(1), Order(2)])
        sink = rp.MapSink(handler, **options)
        await open_and_write(sink, records)
        await sink.flush()
        await sink.close()
        return sink.metrics()

    return run_virtual(job())


@pytest.mark.parametrize(("made", "hints"), [(Order, 1), (None, 1), (bytes, 0)])
def test_a_handler_that_takes_a_record_for_its_value_gets_one_hint(made, hints, caplog):
    async def plain(order):
        order.number  # noqa: B018 - a Record has none

    async def job():
        sink = rp.MapSink(plain, retries=0, on_failure="SKIP")
        await open_and_write(sink, batch_of_keys("a", "b", "c"), value_type=made)
        await sink.flush()
        await sink.close()

    run_virtual(job())

    found = [each.message for each in caplog.records if "annotate the parameter" in each.message]
    assert len(found) == hints
    assert all("plain gets a Record: annotate" in each for each in found)


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
async def of_refund(value: Refund): ...


class First(pydantic.BaseModel):
    version: typing.Literal[1] = 1


class Second(pydantic.BaseModel):
    version: typing.Literal[2] = 2


Versions = typing.Annotated[First | Second, pydantic.Field(discriminator="version")]


async def of_versions(value: Versions): ...
async def of_lists_of_versions(values: list[Versions]): ...
async def of_optional_versions(value: Versions | None): ...


FITTING = [
    (of_value, Order),
    (of_value, Order | None),
    (of_either, Refund),
    (of_values, list[Order]),
    (of_identity, Order),
    (of_document, "json"),
    (of_mapping, "json"),
    (of_bytes, None),
    (of_typed_record, Refund),
    (of_value, lambda record: record.data),
    (of_versions, Versions),
    (of_versions, First),
    (of_optional_versions, Versions),
    (of_lists_of_versions, list[Versions]),
]
OTHERS = [
    (of_value, Refund, "Refund"),
    (of_values, Order, "Order. .*batch_size"),
    (of_identity, Refund, "Refund"),
    (of_value, "json", "dict"),
    (of_value, None, "bytes"),
    (of_bytes, "text", "str"),
    (of_versions, Order, "Order"),
    (of_value, Versions, "First . Second"),
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
    with pytest.raises(rp.ConfigurationError, match=f"'handler' is .*: the deserializer makes {made}"):
        await opened(monkeypatch, handler, deserializer)


@pytest.mark.parametrize(
    ("handlers", "types", "told"),
    [
        ({"orders": of_value, "refunds": of_refund}, {"orders": Order, "refunds": Refund}, None),
        (
            {"orders": of_value, "refunds": of_refund},
            {"orders": Refund, "refunds": Order},
            "stream orders makes Refund",
        ),
        (of_value, {"orders": Order, "refunds": Refund}, "stream refunds makes Refund"),
        (of_either, {"orders": Order, "refunds": Refund}, None),
        (of_value, {"orders": Order, "refunds": lambda record: record.data}, None),
    ],
)
async def test_the_type_of_each_stream_must_fit_its_handler(monkeypatch, handlers, types, told):
    install(monkeypatch, {"a": []})
    fetcher = rp.DataFetcher(["orders", "refunds"], PROPERTIES, sink=rp.MapSink(handlers), deserializer=types)
    if told is None:
        async with fetcher:
            pass
    else:
        with pytest.raises(rp.ConfigurationError, match=f"the deserializer of the {told}"):
            await fetcher.__aenter__()


async def test_a_handler_of_a_stream_that_is_not_read_is_told(monkeypatch, caplog):
    install(monkeypatch, {"a": []})
    async with rp.DataFetcher(["orders"], PROPERTIES, sink=rp.MapSink({"orders": of_bytes, "oders": of_bytes})):
        pass
    assert "the job does not read oders now, so the handler for it is not called" in caplog.text


async def test_the_refusal_names_the_deserializer_and_its_property(monkeypatch):
    words = rf"Valid: deserializer=Order \(in a file: flink.deserializer = {Order.__module__}:Order\), or a function"
    with pytest.raises(rp.ConfigurationError, match=words):
        await opened(monkeypatch, of_value, "json")


@pytest.mark.parametrize("taken", [list, list[rp.Record], list[rp.Record[int]]])
def test_a_handler_of_lists_is_refused_where_it_would_get_single_records(taken):
    def handle(records): ...

    handle.__annotations__["records"] = taken
    rp.MapSink(handle, batch_size=2)
    with pytest.raises(rp.ConfigurationError, match=r"flink\.sink\.map\.batch\.size"):
        rp.MapSink(handle)


# --- Handlers that misbehave ---


def metrics_after(handle, *, keys=("a", "b", "a", "b"), **options):
    """Return the metrics after four records, where the handler misbehaves with the second record."""

    async def job():
        sink = rp.MapSink(handle, **{"retries": 0, "on_failure": "SKIP", "concurrency": 2, **options})
        await open_and_write(sink, batch_of_keys(*keys))
        async with asyncio.timeout(30):
            await sink.flush()
        await sink.close()
        return sink.metrics()

    return job()


def is_bad(record):
    return record.data == b"1"


async def cancels_its_task_and_returns(record):
    if is_bad(record):
        asyncio.current_task().cancel()


async def cancels_its_task_and_waits(record):
    if is_bad(record):
        asyncio.current_task().cancel()
        await asyncio.sleep(1)


async def keeps_a_cancellation(record):
    if is_bad(record):
        asyncio.current_task().cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1)


async def raises_cancelled(record):
    if is_bad(record):
        raise asyncio.CancelledError


class NoTextError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


async def raises_without_text(record):
    if is_bad(record):
        raise NoTextError


async def raises_endless_text(record):
    if is_bad(record):
        raise ValueError("x" * 10_000_000)


class NoClassError(Exception):
    @property
    def __class__(self):
        raise RuntimeError("no class")


async def raises_without_class(record):
    if is_bad(record):
        raise NoClassError


class NoAttributesError(Exception):
    def __getattribute__(self, name):
        raise RuntimeError(f"no {name}")


async def raises_without_attributes(record):
    if is_bad(record):
        raise NoAttributesError


async def returns_a_coroutine(record):
    async def fail():
        raise ValueError("inside")

    return fail() if is_bad(record) else asyncio.sleep(0)


async def returns_a_task(record):
    return asyncio.ensure_future(returns_a_coroutine_that_is_awaited(record))


async def returns_a_coroutine_that_is_awaited(record):
    await (await returns_a_coroutine(record))


async def raises_stop_iteration(record):
    if is_bad(record):
        raise StopIteration


@pytest.mark.parametrize(
    ("handle", "skipped"),
    [
        (cancels_its_task_and_returns, 0),
        (cancels_its_task_and_waits, 1),
        (keeps_a_cancellation, 0),
        (raises_cancelled, 1),
        (raises_without_text, 1),
        (raises_endless_text, 1),
        (raises_without_class, 1),
        (raises_stop_iteration, 1),
        (raises_without_attributes, 1),
        (returns_a_coroutine, 1),
        (returns_a_task, 1),
    ],
)
def test_an_async_handler_that_misbehaves_harms_only_its_record(handle, skipped, caplog):
    metrics = run_virtual(metrics_after(handle))
    assert (metrics["skipped"], metrics["handled"], metrics["outstanding"]) == (skipped, 4 - skipped, 0)
    assert len(caplog.text) < 100_000


def plain_stop_iteration(record):
    if is_bad(record):
        raise StopIteration(5)


def plain_cancelled(record):
    if is_bad(record):
        raise concurrent.futures.CancelledError


def plain_generator(record):
    return (number for number in range(3)) if is_bad(record) else None


def plain_coroutine_that_fails(record):
    async def fail():
        raise ValueError("inside")

    return fail() if is_bad(record) else asyncio.sleep(0)


@pytest.mark.parametrize("handle", [plain_stop_iteration, plain_cancelled, plain_generator, plain_coroutine_that_fails])
async def test_a_plain_handler_that_misbehaves_harms_only_its_record(handle):
    metrics = await metrics_after(handle)
    assert (metrics["skipped"], metrics["handled"], metrics["outstanding"]) == (1, 3, 0)


async def test_what_a_plain_handler_returns_is_awaited():
    done = []

    async def handle(record):
        await asyncio.sleep(0)
        done.append(record.data)

    metrics = await metrics_after(lambda record: handle(record))  # noqa: PLW0108 - a plain function
    assert (sorted(done), metrics["handled"]) == ([b"0", b"1", b"2", b"3"], 4)


def generator(record):
    yield record


async def async_generator(record):
    yield record


class GeneratorCall:
    def __call__(self, record):
        yield record


@pytest.mark.parametrize("handle", [generator, async_generator, GeneratorCall()])
def test_generators_are_refused(handle):
    with pytest.raises(rp.ConfigurationError, match="calling it would run none of its code"):
        rp.MapSink(handle)


NAME = "test_a_handler_that_hangs_is_named_once_a_minute_with_its_record.<locals>.job.<locals>.handle"


@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_handler_that_hangs_is_named_once_a_minute_with_its_record(caplog, batch_size):
    async def job():
        async def handle(records):
            first = records if batch_size == 1 else records[0]
            if is_bad(first):
                await asyncio.sleep(130)

        sink = rp.MapSink(handle, batch_size=batch_size, clock=VirtualClock())
        await open_and_write(sink, batch_of_keys("a", "a").slice(1, 2))
        await asyncio.sleep(70)
        unfinished, same = sink.unfinished(), sink.unfinished().call
        await asyncio.sleep(600)
        await sink.close()
        return unfinished.reason, unfinished.call, same, sink.unfinished()

    reason, call, same, then = run_virtual(job())
    assert reason == f"records not handled: 1, the handler {NAME} has run for 70 s with record 2 of orders/shardId-0"
    assert call == same is not None
    assert then == Unfinished(0, "records not handled: 0", None)
    warnings = [line for line in caplog.messages if "has run for" in line]
    assert len(warnings) == 2
    assert warnings[0].startswith(f"the handler {NAME} has run for 60 s with record 2 of orders/shardId-0")


def test_a_function_without_arguments_is_refused():
    with pytest.raises(rp.ConfigurationError, match="cannot be called with 1 argument"):
        rp.MapSink(lambda: None)


def test_an_async_handler_that_ends_the_process_has_failed_with_its_traceback(caplog):
    async def handle(record):
        if is_bad(record):
            raise SystemExit(3)

    metrics = run_virtual(metrics_after(handle))
    line = next(line for line in caplog.records if "SystemExit: 3" in line.getMessage())
    assert (metrics["handled"], metrics["skipped"]) == (3, 1)
    assert isinstance(line.exc_info[1].__cause__, SystemExit)


@dataclass(frozen=True)
class FrozenError(Exception):
    code: int


def test_an_error_that_cannot_be_changed_ends_the_job_as_well(caplog):
    async def handle(record):
        raise FrozenError(7)

    with pytest.raises(
        rp.SinkError, match=r"record 1 of orders/shardId-0 cannot be handled after 1 attempt: FrozenError: 7"
    ):
        run_virtual(metrics_after(handle, on_failure="FAIL", retries=0))


def test_a_failure_that_ends_the_job_is_logged_with_record_and_traceback(caplog):
    async def handle(record):
        raise KeyError("customer")

    with pytest.raises(rp.SinkError, match=r"record 1 of orders/shardId-0 .* on_failure=SKIP or DEAD_LETTER continues"):
        run_virtual(metrics_after(handle, on_failure="FAIL", concurrency=1))
    line = next(line for line in caplog.records if "record 1 of orders/shardId-0" in line.getMessage())
    assert line.levelno == logging.ERROR
    assert line.exc_info[1].args == ("customer",)


def test_many_skipped_records_are_logged_once_a_minute(caplog):
    async def handle(record):
        raise KeyError("customer")

    assert run_virtual(metrics_after(handle, keys="a" * 100))["skipped"] == 100
    lines = [line for line in caplog.records if line.getMessage().startswith("skipped record ")]
    assert [(line.getMessage(), line.exc_info[0]) for line in lines] == [
        ("skipped record 1 of orders/shardId-0: 1 attempt: KeyError: 'customer'", KeyError)
    ]


def test_time_in_which_the_process_was_stopped_does_not_count_as_time_of_a_handler():
    async def job():
        async def handle(record):
            await asyncio.sleep(601.9)

        sink = rp.MapSink(handle, timeout=2.0, clock=VirtualClock(), retries=0)
        await open_and_write(sink, batch_of_keys("a"))
        await asyncio.sleep(1.5)
        asyncio.get_running_loop().suspend(600)
        await sink.flush()
        await sink.close()
        return sink.metrics()

    metrics = run_virtual(job())
    assert (metrics["handled"], metrics["timeouts"]) == (1, 0)


def test_a_handler_that_ignores_the_cancellation_of_its_timeout_may_continue():
    async def job():
        async def handle(record):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(1)

        sink = rp.MapSink(handle, timeout=2.0, concurrency=1)
        await open_and_write(sink, batch_of_keys("a", "b"))
        await sink.flush()
        await sink.close()
        return sink.metrics()

    assert run_virtual(job())["handled"] == 2


def test_a_handler_that_swallows_every_cancellation_is_left_behind_with_a_log_line(caplog):
    async def stubborn(record):
        while True:
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                continue

    async def story():
        sink = rp.MapSink(stubborn)
        await open_and_write(sink, batch_of_keys("a"))
        await asyncio.sleep(1)
        async with asyncio.timeout(30):
            await sink.close()
        return len(asyncio.all_tasks())

    assert run_virtual(story()) == 1, "asyncio.run waits for no task"
    assert "1 handler did not end within 10 s after a cancellation" in caplog.text


@pytest.mark.parametrize(("ordering", "waiting"), [("PER_KEY", "key: 2"), ("PER_SHARD", "shard: 4")])
def test_records_that_wait_for_their_key_or_shard_are_counted(ordering, waiting):
    async def job():
        handler = WaitingHandler()
        sink = rp.MapSink(handler, concurrency=2, ordering=ordering, clock=VirtualClock())
        await open_and_write(sink, batch_of_keys("a", "a", "b", "a", "c"))
        reason = sink.unfinished().reason
        await sink.close()
        return reason

    assert run_virtual(job()).startswith(
        f"records not handled: 5, waiting for an earlier record of their {waiting}, the handler "
    )


def test_a_record_that_is_handled_again_is_logged_with_its_error(caplog):
    async def job():
        async def handle(record):
            raise ValueError("db down")

        sink = rp.MapSink(handle, retries=100)
        await sink.open(SinkContext())
        await sink.write(batch_of_keys("a"))
        await settle()
        reason = sink.unfinished().reason
        await sink.close()
        return reason

    assert run_virtual(job()) == "records not handled: 1, waiting for a retry: 1"
    (line,) = (line for line in caplog.messages if line.startswith("handled again: "))
    assert line.endswith("attempt 1: ValueError: db down")


def test_the_first_failure_of_a_record_is_logged_with_its_traceback_and_later_ones_in_a_line_a_minute(caplog):
    async def job():
        async def handle(record):
            raise KeyError("price")

        sink = rp.MapSink(handle, retries=100)
        await sink.open(SinkContext())
        await sink.write(batch_of_keys("a"))
        await asyncio.sleep(235)  # each line waits for the first retry after its minute
        await sink.close()

    run_virtual(job())
    first, *later = (line for line in caplog.records if line.message.startswith("handled again: "))
    assert first.exc_info[0] is KeyError
    assert [frame.name for frame in traceback.extract_tb(first.exc_info[2])] == ["handle"]
    assert [line.exc_info for line in later] == [None] * 3


@pytest.mark.parametrize(("is_another", "traces"), [(False, ["handled"]), (True, ["handled", "record"])])
def test_the_last_failure_has_a_traceback_if_it_is_another_one(is_another, traces, caplog):
    calls = []

    async def handle(record):
        calls.append(record)
        raise KeyError("price" if len(calls) == 1 or not is_another else "customer")

    with pytest.raises(rp.SinkError):
        run_virtual(metrics_after(handle, on_failure="FAIL", retries=3, keys="a"))
    assert [line.message.split()[0] for line in caplog.records if line.exc_info] == traces
