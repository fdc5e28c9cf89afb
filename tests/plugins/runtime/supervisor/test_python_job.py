"""A job that a program makes, as `recordpublisher run shop:job` runs it; and its test without a port."""

import asyncio
import os
import signal
import sys

import pytest

import recordpublisher as rp
from recordpublisher.local import in_memory
from recordpublisher.plugins.runtime.argument_checks import COMMAND_OPTIONS, CommandOptions
from recordpublisher.plugins.runtime.job_of_program import describe_program, fetcher_from_program, run_python_job

SHOP = """
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import recordpublisher as rp


class Order(msgspec.Struct):
    price: int


log = []


async def on_order(name, order: Order):
    log.append((name, order.price))


async def on_click(record):
    log.append(record.value)


def on_refund(value: bytes):
    log.append(value)


SETTINGS = {"region": "eu-west-1", "start": "TRIM_HORIZON", "job_name": "shop"}


@asynccontextmanager
async def job():
    log.append("opened")
    handlers = {"orders": partial(on_order, "db"), "clicks": on_click, "refunds": on_refund}
    types = {"orders": Order, "clicks": dict, "refunds": lambda record: record.data}
    yield rp.DataFetcher(list(handlers), sink=rp.MapSink(handlers), deserializer=types, **SETTINGS)
    log.append("closed")


def function():
    return rp.DataFetcher("orders", sink=rp.MapSink(on_click), **SETTINGS)


fetcher = function()
number = 5
of_lambda = rp.lambda_handler(on_click)


async def later():
    return fetcher


def stored(folder="live"):
    arguments = {"sink": rp.MapSink(on_refund), "state_store": rp.FolderStore(folder), "deserializer": Order}
    return rp.DataFetcher("orders", timestamp_assigner=lambda record: record.value.price, **arguments, **SETTINGS)
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    (tmp_path / "shop_of_program.py").write_text(SHOP)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop_of_program", raising=False)
    import shop_of_program

    return shop_of_program


async def test_three_streams_have_a_handler_each_and_share_a_resource(shop):
    with in_memory({"orders": 2, "clicks": 1, "refunds": 1}) as account:
        account.find("orders").put(b'{"price": 5}', "k")
        account.find("clicks").put(b'{"page": "/"}', "k")
        account.find("refunds").put(b"refund", "k")
        async with shop.job() as fetcher, fetcher:
            await fetcher.run_bounded(stop_at_tip=True)

    first, *handled, last = shop.log
    assert (first, last) == ("opened", "closed")
    assert sorted(handled, key=str) == [("db", 5), b"refund", {"page": "/"}]


@pytest.mark.parametrize("name", ["job", "function", "fetcher", "later"])
async def test_a_job_is_a_fetcher_or_a_function_of_one(shop, name):
    async with fetcher_from_program(f"shop_of_program:{name}") as fetcher:
        assert isinstance(fetcher, rp.DataFetcher)


@pytest.mark.parametrize("name", ["number", "SHOP", "on_refund", "on_click", "of_lambda"])
@pytest.mark.usefixtures("shop")
async def test_anything_else_is_refused(name):
    with pytest.raises(rp.ConfigurationError, match=r"'JOB'.* of a DataFetcher, or of a function"):
        async with fetcher_from_program(f"shop_of_program:{name}"):
            pass


async def test_options_of_the_command_are_above_those_of_the_program(shop):
    async def run():
        COMMAND_OPTIONS.set(CommandOptions(rp.Properties({"flink.job.name": "other"})))
        async with fetcher_from_program("shop_of_program:function") as fetcher:
            return fetcher.properties["flink.job.name"]

    assert await asyncio.create_task(run()) == "other"


def test_an_option_stands_in_place_of_the_argument_for_commands_beside_the_job(shop, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = {"flink.state.uri": "copy", "flink.streams": "clicks,refunds"}
    found = [describe_program("shop_of_program:stored", each)[0] for each in ({}, given)]

    assert [each["flink.state.uri"] for each in found] == ["live", "copy"]
    assert [each["flink.streams"] for each in found] == ["orders", "clicks,refunds"]


def test_a_run_stores_positions_where_an_option_says_and_calls_the_sink_of_an_option(shop, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = {
        "flink.state.uri": "copy",
        "flink.streams": "clicks",
        "flink.sink": "map",
        "flink.sink.map.function": "shop_of_program:on_click",
        "flink.deserializer": "text",
        "flink.watermark.timestamp.field": "at",
    }

    def stopping(progress):
        if progress.records:
            os.kill(os.getpid(), signal.SIGTERM)

    with in_memory({"orders": 1, "clicks": 1}) as account:
        account.find("clicks").put(b'{"at": 5}', "k")
        asyncio.run(run_python_job("shop_of_program:stored", rp.Properties(given), lambda own: own, stopping, []))

    assert shop.log == ['{"at": 5}']
    assert (tmp_path / "copy").exists()
    assert not (tmp_path / "live").exists()


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("flink.sink.map.timeout", "1s", "sink"),
        ("flink.sink.kinesis.ordering", "PER_KEY", "sink"),
        ("flink.deserializer.avro.schema", "{}", "deserializer"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_an_option_that_a_run_cannot_follow_is_refused(key, value, kind):
    """The program has made the sink and the deserializer before, with its own settings."""
    given = rp.Properties({key: value})
    refused = rf"property '{key}' is '{value}': it has no effect, because the program makes the {kind}"
    with in_memory({"orders": 1}), pytest.raises(rp.ConfigurationError, match=refused):
        asyncio.run(run_python_job("shop_of_program:stored", given, lambda own: own, lambda _: None, []))
    describe_program("shop_of_program:stored", dict(given))


async def test_a_stream_without_a_handler_is_refused_when_the_job_opens(shop):
    with in_memory({"orders": 1, "views": 1}):
        job = rp.DataFetcher(["orders", "views"], sink=rp.MapSink({"orders": shop.on_click}), **shop.SETTINGS)
        with pytest.raises(rp.ConfigurationError, match="including views"):
            async with job:
                pass


async def test_a_sink_in_memory_is_read_by_a_job_in_memory():
    with in_memory({"orders": 1}):
        given = {"aws.region": "eu-west-1", "flink.stream.initpos": "TRIM_HORIZON"}
        async with rp.KinesisSink("orders", given) as sink:
            await sink.put(b"1", "k")
        read = [record.data async for batch in rp.stream("orders", given, stop_at_tip=True) for record in batch]

    assert read == [b"1"]
