"""`DataFetcher`, `stream` and `consume` take properties as keyword arguments, beside a mapping or without one."""

import asyncio
import inspect
import re
import typing

import pytest

import recordpublisher as rp

from fakes.memory_streams import PROPERTIES, install


@pytest.fixture
def _orders(monkeypatch):
    install(monkeypatch, {"a": [b'{"order": %d}' % number for number in range(5)]})


@pytest.mark.usefixtures("_orders")
def test_a_job_needs_no_mapping():
    records = rp.consume("orders", publisher="MEMORY", start="TRIM_HORIZON", deserializer="json", stop_at_tip=True)

    assert [record.value["order"] for record in records] == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("_orders")
def test_keywords_complete_a_mapping():
    async def orders():
        batches = rp.stream(["orders"], PROPERTIES, deserializer_error="SKIP", deserializer="json", stop_at_tip=True)
        return [value["order"] async for batch in batches for value in batch.values]

    assert asyncio.run(orders()) == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("_orders")
def test_a_sink_is_given_by_its_name(tmp_path):
    async def run():
        names = {"sink": "jsonl", "sink_jsonl_path": str(tmp_path)}
        async with rp.DataFetcher("orders", PROPERTIES, **names) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True)

    asyncio.run(run())

    assert sum(len(file.read_bytes().splitlines()) for file in tmp_path.rglob("*.jsonl")) == 5


@pytest.mark.parametrize("read", [rp.consume, rp.stream, rp.DataFetcher])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"publisher": "POLLING", "stream_recordpublisher": "EFO"},
            "cannot be combined with 'stream_recordpublisher=EFO': both set",
        ),
        ({"group_id": "shop"}, "did you mean 'job_name'"),
        ({"regoin": "eu-west-1"}, "did you mean 'region'"),
        ({"start": "NOW"}, "Valid: TRIM_HORIZON, LATEST, AT_TIMESTAMP"),
    ],
)
def test_a_wrong_keyword_is_an_error_at_once(read, settings, message):
    with pytest.raises(rp.ConfigurationError, match=message):
        read("orders", PROPERTIES | {"flink.stream.initpos": "LATEST"} if "start" not in settings else {}, **settings)


@pytest.mark.parametrize(
    ("read", "keyword", "hint"),
    [
        (rp.consume, "stop_at_tp", "did you mean 'stop_at_tip'?"),
        (rp.consume, "stop_at_tpi", "did you mean 'stop_at_tip'?"),
        (rp.stream, "max_record", "did you mean 'max_records'?"),
        (rp.consume, "restor", "did you mean 'restore'?"),
        (rp.consume, "regoin", "did you mean 'region'?"),
        (rp.DataFetcher, "restor", "did you mean 'restore'?"),
        (rp.DataFetcher, "stop_at_tip", "'stop_at_tip' is an argument of run_bounded"),
        (rp.read_polars, "begin", "did you mean 'start'?"),
        (rp.consume, "since", "did you mean 'start'?"),
        (rp.read_arrow, "until", "did you mean 'end'?"),
        (rp.read_polars, "stop_at_tip", "this reads up to 'end'"),
        (rp.read_arrow, "max_records", "this reads up to 'end'"),
    ],
)
def test_an_unknown_keyword_is_told_with_the_argument_that_was_meant(read, keyword, hint):
    with pytest.raises(rp.ConfigurationError, match=f"there is no such keyword argument; {re.escape(hint)}"):
        read("orders", PROPERTIES, **{keyword: "1"})


@pytest.mark.parametrize(
    "read",
    [rp.consume, rp.stream, rp.DataFetcher.__init__, rp.KinesisSink.__init__, rp.Producer.__init__],
)
def test_an_editor_sees_every_keyword(read):
    hints = typing.get_type_hints(read, localns=vars(rp) | {"Assigner": object})
    arguments = set(inspect.signature(read).parameters)

    (settings,) = typing.get_args(hints["settings"])

    assert settings is rp.JobSettings
    assert not arguments & set(rp.JobSettings.__annotations__)


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        (len, "it is a function. Valid: rp.MapSink(len)"),
        (rp.MemorySink, "it is a class. Valid: MemorySink()"),
        (5, "Valid: an instance of recordpublisher.Sink"),
    ],
)
def test_what_is_not_a_sink_is_an_error_that_says_what_is(sink, words):
    with pytest.raises(rp.ConfigurationError) as raised:
        rp.DataFetcher("orders", PROPERTIES, sink=sink)

    assert words in str(raised.value)


async def test_a_run_or_a_snapshot_outside_async_with_says_what_is_missing(monkeypatch, caplog):
    install(monkeypatch, {"a": [b"1"]})
    fetcher = rp.DataFetcher("orders", PROPERTIES, sink=rp.MemorySink())
    for run in (fetcher.run, fetcher.run_bounded):
        with pytest.raises(rp.StateError, match=r"^the fetcher is not open: run it inside 'async with fetcher:'$"):
            await run()
    with pytest.raises(rp.StateError, match="take snapshots inside 'async with fetcher:'"):
        fetcher.snapshot()
    assert not caplog.messages, "nothing was read that could end"


async def test_a_run_after_the_end_of_async_with_says_what_is_missing(monkeypatch):
    install(monkeypatch, {"a": [b"1"]})
    async with rp.DataFetcher("orders", PROPERTIES, sink=rp.MemorySink()) as fetcher:
        pass
    with pytest.raises(rp.StateError, match="is not open"):
        await fetcher.run()
